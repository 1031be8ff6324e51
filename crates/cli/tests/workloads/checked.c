// Fills MIB of memory ROUNDS times, and checks it each time: checked MIB ROUNDS.
#include "pages.h"

int main(int argc, char **argv) {
    size_t bytes = atol(argv[1]) * MIB, wrong = 0;
    uint64_t *memory = map(bytes);
    for (int round = 0; round < atoi(argv[2]); round++) {
        fill(memory, bytes, round);
        wrong += check(memory, bytes, round);
    }
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
