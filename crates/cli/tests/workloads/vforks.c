// Fills memory while children that share its memory (vfork, clone with CLONE_VM) live for seconds.
#include "pages.h"
#include <sched.h>
#include <signal.h>

enum { OTHER = 60, ROUNDS = 4 };

static void *in_vfork(void *arg) {
    pid_t child = vfork();
    if (child == 0) {
        execlp("sleep", "sleep", "0.1", (char *)NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    return arg;
}

static int in_clone(void *arg) {
    sleep(3);
    return 0;
}

int main(void) {
    static char stack[65536] __attribute__((aligned(16)));
    pid_t child = clone(in_clone, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    MUST(child);
    pthread_t thread;
    pthread_create(&thread, NULL, in_vfork, NULL);
    uint64_t *other = map(OTHER * MIB);
    size_t wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        fill(other, OTHER * MIB, round);
        wrong += check(other, OTHER * MIB, round);
        usleep(300000);
    }
    pthread_join(thread, NULL);
    MUST(waitpid(child, NULL, 0));
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
