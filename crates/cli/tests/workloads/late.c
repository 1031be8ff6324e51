// A library between memfit and libc, as a program may bring: its setgroups first calls `before_setgroups`.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <grp.h>

void (*before_setgroups)(void);

int setgroups(size_t count, const gid_t *groups) {
    if (before_setgroups) before_setgroups();
    int (*next)(size_t, const gid_t *) = (int (*)(size_t, const gid_t *))dlsym(RTLD_NEXT, "setgroups");
    return next(count, groups);
}
