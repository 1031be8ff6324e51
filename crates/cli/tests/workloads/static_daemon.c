// A small process forks twice, and waits for the end of its grandchild, which fills memory and verifies it.
#include "pages.h"

int main(void) {
    int ends[2];
    MUST(pipe(ends));
    pid_t child = fork();
    if (child) {
        char byte;
        close(ends[1]);
        waitpid(child, NULL, 0);
        return read(ends[0], &byte, 1) != 0;
    }
    setsid();
    if (fork() > 0) _exit(0);
    size_t bytes = 48 * MIB, wrong = 0;
    uint64_t *p = map(bytes);
    fill(p, bytes, 1);
    for (int round = 0; round < 8; round++) {
        usleep(200000);
        wrong += check(p, bytes, 1);
    }
    printf("wrong: %zu\n", wrong);
    return 0;
}
