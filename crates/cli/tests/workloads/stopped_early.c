// Stops children that have just begun to fill memory: memfit makes its thread in them at that moment. A stop must not
// get lost. With an argument it is such a child.
#include "pages.h"
#include <signal.h>
#include <sys/prctl.h>

#define BYTES (60 * MIB)
#define ROUNDS 400

int main(int argc, char **argv) {
    if (argc > 1) {
        MUST(prctl(PR_SET_PDEATHSIG, SIGKILL));
        for (uint64_t *memory = map(8 * MIB);;) fill(memory, 8 * MIB, 1);
    }
    uint64_t *memory = map(BYTES);
    fill(memory, BYTES, 1);
    int stopped = 0;
    for (int round = 0; round < ROUNDS && stopped == round; round++) {
        pid_t child = fork();
        MUST(child);
        if (!child) MUST(execl("/proc/self/exe", "child", "child", NULL));
        int status = 0;
        usleep(500 + rand() % 8000);
        MUST(kill(child, SIGSTOP));
        // For ten seconds: a stop that comes takes a millisecond.
        for (int waited = 0; !waitpid(child, &status, WUNTRACED | WNOHANG) && waited < 20000; waited++) usleep(500);
        stopped += WIFSTOPPED(status);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    printf("stopped: %d, wrong: %zu\n", stopped, check(memory, BYTES, 1));
    return 0;
}
