// Hides /proc from itself and then enters a user namespace, which the kernel allows to a process of one thread only.
#include "pages.h"
#include <sched.h>
#include <sys/mount.h>

#define BYTES (60 * MIB)

int main(void) {
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return REFUSED;
    if (mount("none", "/proc", "tmpfs", 0, NULL)) return REFUSED;
    uint64_t *memory = map(BYTES);
    size_t wrong = 0;
    for (int round = 0; round < 4; round++) {
        fill(memory, BYTES, round);
        usleep(20000);
        wrong += check(memory, BYTES, round);
    }
    if (unshare(CLONE_NEWUSER)) return errno == EINVAL ? 1 : REFUSED;
    wrong += check(memory, BYTES, 3);
    printf("wrong: %zu\n", wrong);
    return 0;
}
