// Children that fork() did not make and that have memory of their own: by libc's clone(), by syscall(SYS_clone), by
// syscall(SYS_clone3), by syscall(SYS_fork), as sandboxes and containers make them, and by _Fork (glibc 2.34). Each checks
// all that it has inherited.
#include "pages.h"
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

enum { MEMORY = 60, ROUNDS = 3, WAYS = 5 };

extern pid_t _Fork(void) __attribute__((weak));

static uint64_t *memory;

static int look(void *seed) {
    return check(memory, MEMORY * MIB, (uintptr_t)seed) != 0 ? 9 : 0;
}

int main(void) {
    memory = map(MEMORY * MIB);
    // Filled long before it is used.
    size_t stack_bytes = 2 * MIB;
    char *stack = (char *)map(stack_bytes);
    fill((uint64_t *)stack, stack_bytes, 77);
    int bad = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int way = 0; way < WAYS; way++) {
            fill(memory, MEMORY * MIB, round + way);
            uintptr_t seed = round + way;
            struct clone_args args = {.exit_signal = SIGCHLD};
            pid_t child = -1;
            if (way == 0) child = clone(look, stack + stack_bytes, SIGCHLD, (void *)seed);
            if (way == 1) child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
            if (way == 2) child = syscall(SYS_clone3, &args, sizeof args);
            if (way == 3) child = syscall(SYS_fork);
            if (way == 4) child = _Fork ? _Fork() : fork();
            if (child == 0) _exit(look((void *)seed));
            MUST(child);
            int status = status_of(child);
            if (status) printf("round %d, way %d: %d\n", round, way, status), bad++;
        }
    }
    bad += check(memory, MEMORY * MIB, ROUNDS - 1 + WAYS - 1) != 0;
    printf("wrong: %d\n", bad);
    return bad != 0;
}
