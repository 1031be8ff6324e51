// Reads its memory downwards, page by page ("pages"), or through blocks of four pages as a program
// does that frees what it has in an allocator's blocks, from the last to the first ("blocks"). Or
// with single pages that are read-only, so that each page is in a mapping of few pages ("pieces"),
// or guarded or gone ("holes").
#include "pages.h"

enum { INSTALL = 102, SIZE = 80, FIRST = 44, ROUNDS = 3, PERIOD = 37 };

static char how;
static int ends[2];

// Whether a page can be read.
static int readable(const void *at) {
    char byte;
    if (write(ends[1], at, 1) != 1) return 0;
    MUST(read(ends[0], &byte, 1));
    return 1;
}

static size_t check_page(const uint64_t *memory, size_t page) {
    size_t wrong = 0;
    for (size_t i = page * 512; i < (page + 1) * 512; i++) wrong += memory[i] != word(1, i);
    return wrong;
}

int main(int argc, char **argv) {
    static const size_t order[] = {3, 0, 2, 1};
    size_t pages = SIZE * MIB / PAGE, wrong = 0, holes = 0;
    how = argv[1][1];
    MUST(pipe(ends));
    uint64_t *memory = map(SIZE * MIB);
    // So that not all of it is there before the first page is evicted.
    fill(memory, FIRST * MIB, 1);
    wait_until_paged(FIRST * MIB);
    fill(memory, SIZE * MIB, 1);
    for (size_t page = 0; page < pages; page++) {
        char *at = (char *)memory + page * PAGE;
        if (how == 'i' && page % PERIOD < 2) MUST(mprotect(at, PAGE, PROT_READ));
        if (how == 'o' && page % PERIOD == 0) MUST(munmap(at, PAGE));
        if (how == 'o' && page % PERIOD == 1 && madvise(at, PAGE, INSTALL) != 0) MUST(munmap(at, PAGE));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = pages; i-- > 0;) {
            size_t page = how == 'l' ? i / 4 * 4 + order[3 - i % 4] : i;
            if (how == 'o' && page % PERIOD < 2) {
                holes += !readable((char *)memory + page * PAGE);
            } else {
                wrong += check_page(memory, page);
            }
        }
    }
    printf("wrong: %zu, holes: %zu\n", wrong, holes);
    return wrong != 0;
}
