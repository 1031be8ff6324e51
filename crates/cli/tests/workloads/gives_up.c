// Gives up rights after a part of it was paged out; then prints the rights of its threads. "groups" gives up groups, "filter"
// system calls, "privileges" those of programs that it starts, "landlock" the making of directories. With "late" it is paged
// only after memfit's setgroups has begun, and before libc's.
#include "pages.h"
#include <grp.h>
#include <dirent.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { OTHER = 60 };
static uint64_t *other;
extern void (*before_setgroups)(void);

static void become_paged(void) {
    fill(other, OTHER * MIB, 1);
    wait_until_paged(OTHER * MIB);
}

static void give_up(const char *what) {
    if (!strcmp(what, "groups") || !strcmp(what, "late")) {
        if (setgroups(0, NULL)) {
            printf("setgroups: %s\n", strerror(errno));
            exit(REFUSED);
        }
        return;
    }
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (!strcmp(what, "landlock")) {
        struct landlock_ruleset_attr rules = {.handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_DIR};
        int set = syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
        if (set < 0) {
            printf("landlock: %s\n", strerror(errno));
            exit(REFUSED);
        }
        MUST(syscall(SYS_landlock_restrict_self, set, 0));
        return;
    }
    if (strcmp(what, "filter")) return;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mount, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, filter};
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void tell(void) {
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) exit(4);
    for (struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.') continue;
        char path[300], line[256], name[64] = "";
        int privileges = -1, mode = -1;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        while (status && fgets(line, sizeof line, status)) {
            sscanf(line, "Name: %63s", name);
            sscanf(line, "NoNewPrivs: %d", &privileges);
            sscanf(line, "Seccomp: %d", &mode);
        }
        if (status) fclose(status);
        printf("%s: no new privileges %d, filters %d\n", name, privileges, mode);
    }
    closedir(tasks);
}

int main(int argc, char **argv) {
    if (argc < 2) return 1;
    other = map(OTHER * MIB);
    if (strcmp(argv[1], "late")) {
        become_paged();
    } else {
        before_setgroups = become_paged;
    }
    give_up(argv[1]);
    tell();
    size_t wrong = check(other, OTHER * MIB, 1);
    fill(other, OTHER * MIB, 2);
    printf("wrong: %zu\n", wrong + check(other, OTHER * MIB, 2));
    return 0;
}
