// Processes that change memory at random, each its own, until the file "stop" exists. Each then checks all of it.
#include "pages.h"

static size_t work(size_t bytes, uint64_t x) {
    size_t pages = bytes / PAGE, wrong = 0;
    uint64_t *memory = map(bytes), seed = x;
    uint32_t *changed = calloc(pages, sizeof *changed);
    fill(memory, bytes, seed);
    for (size_t i = 0; i % 256 || access("stop", F_OK); i++) {
        size_t page = next(&x) % pages, at = page * (PAGE / 8) + page % (PAGE / 8);
        wrong += memory[at] != word(seed, at) + changed[page];
        memory[at]++, changed[page]++;
    }
    for (size_t page = 0; page < pages; page++) memory[page * (PAGE / 8) + page % (PAGE / 8)] -= changed[page];
    return wrong + check(memory, bytes, seed);
}

int main(int argc, char **argv) {
    int count = atoi(argv[argc - 2]), failed = 0, status;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        MUST(child);
        if (child == 0) _exit(work(atoi(argv[argc - 1]) * MIB, i + 1) != 0);
    }
    while (wait(&status) > 0) failed += status != 0;
    printf("failed: %d of %d\n", failed, count);
    return failed;
}
