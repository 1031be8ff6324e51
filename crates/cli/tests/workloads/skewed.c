// Random accesses, four of five to one fifth of the pages, which lie scattered. Each word read must be as it was filled.
#include "pages.h"

int main(int argc, char **argv) {
    size_t bytes = atoi(argv[argc - 2]) * MIB, accesses = atoi(argv[argc - 1]), pages = bytes / PAGE, often = pages / 5, wrong = 0;
    uint64_t *memory = map(bytes), x = 88172645463325252;
    uint32_t *order = malloc(pages * sizeof *order);
    fill(memory, bytes, 1);
    for (size_t i = 0; i < pages; i++) order[i] = i;
    for (size_t i = pages - 1; i > 0; i--) {
        size_t other = next(&x) % (i + 1);
        uint32_t page = order[i];
        order[i] = order[other], order[other] = page;
    }
    for (size_t i = 0; i < accesses; i++) {
        size_t which = next(&x) % 5 ? next(&x) % often : often + next(&x) % (pages - often);
        size_t at = order[which] * (PAGE / 8) + next(&x) % (PAGE / 8);
        wrong += memory[at] != word(1, at);
        if (i % 16 == 0) memory[at] = word(1, at);
    }
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
