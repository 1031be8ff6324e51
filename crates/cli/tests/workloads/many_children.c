// Fills memory, then forks until COUNT children live at the same time. Each child checks what it has inherited and waits for
// all. Killed children are counted; a child that reads wrong bytes is worse than one that is killed.
#include "pages.h"
#include <signal.h>

enum { MEMORY = 48 };

int main(int argc, char **argv) {
    int count = atoi(argv[1]), ends[2], killed = 0, wrong = 0, failed = 0;
    pid_t *children = calloc(count, sizeof *children);
    uint64_t *memory = map(MEMORY * MIB);
    fill(memory, MEMORY * MIB, 1);
    wait_until_paged(MEMORY * MIB);
    MUST(pipe(ends));
    for (int i = 0; i < count; i++) {
        children[i] = fork();
        if (children[i] < 0) {
            failed++;
            continue;
        }
        if (children[i] == 0) {
            close(ends[1]);
            size_t part = MEMORY * MIB / 16;
            size_t bad = check(memory, part, 1);
            char byte;
            read(ends[0], &byte, 1);
            _exit(bad != 0);
        }
    }
    close(ends[1]);
    for (int i = 0; i < count; i++) {
        int status = 0;
        if (children[i] < 0) continue;
        MUST(waitpid(children[i], &status, 0));
        killed += WIFSIGNALED(status);
        wrong += WIFEXITED(status) && WEXITSTATUS(status);
    }
    wrong += check(memory, MEMORY * MIB, 1) != 0;
    printf("wrong: %d\n", wrong);
    fprintf(stderr, "killed: %d, not forked: %d\n", killed, failed);
    return wrong != 0;
}
