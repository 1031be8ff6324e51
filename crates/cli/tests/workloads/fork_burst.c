// fork_burst MIB CHILDREN OWN: fills MIB, then makes CHILDREN at once. Each fills OWN MiB of its
// own as soon as it runs, and checks those and what it has from its parent.
#include "pages.h"

int main(int argc, char **argv) {
    size_t shared = atoi(argv[argc - 3]) * MIB, own = atoi(argv[argc - 1]) * MIB;
    int children = atoi(argv[argc - 2]), wrong = 0, status;
    uint64_t *memory = map(shared);
    fill(memory, shared, 1);
    for (int i = 0; i < children; i++) {
        pid_t child = fork();
        MUST(child);
        if (child == 0) {
            uint64_t *mine = map(own);
            fill(mine, own, i + 2);
            _exit(check(mine, own, i + 2) + check(memory, shared, 1) != 0);
        }
    }
    while (wait(&status) > 0) wrong += status != 0;
    printf("wrong: %d of %d, %zu\n", wrong, children, check(memory, shared, 1));
    return wrong;
}
