// Frees parts of its mappings, works until it is paged, and checks that nothing is mapped there then.
#include "pages.h"

enum { MAPPINGS = 24, ROUNDS = 3, SIZE = 4 };

static int mapped(void *at) {
    unsigned char there;
    return mincore(at, PAGE, &there) == 0;
}

int main(void) {
    static char *memory[MAPPINGS];
    size_t wrong = 0;
    for (int i = 0; i < MAPPINGS; i++) {
        memory[i] = (char *)map(SIZE * MIB);
        MUST(munmap(memory[i] + MIB, i % 2 ? 2 * MIB : 2 * PAGE));
        fill((uint64_t *)(memory[i] + 3 * MIB), MIB, i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        // A new mapping of its own would fill the holes, too: so this memory comes from brk.
        uint64_t *more = sbrk(40 * MIB);
        fill(more, 40 * MIB, round);
        for (int i = 0; i < MAPPINGS; i++) {
            wrong += check((uint64_t *)(memory[i] + 3 * MIB), MIB, i);
            wrong += mapped(memory[i] + MIB) + (i % 2 && mapped(memory[i] + 2 * MIB));
        }
        MUST((long)sbrk(-40 * (long)MIB));
    }
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
