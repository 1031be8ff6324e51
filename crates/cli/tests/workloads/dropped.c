// Memory that the kernel may drop at any time: each page of it has its contents, or is empty. One mapping of it is made
// before the program uses much memory, another one after that. Linux before 6.11 has no such memory.
#include "pages.h"
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

enum { DROPPABLE = 12, OTHER = 60, ROUNDS = 4 };

static size_t dropped;

static uint64_t *droppable(void) {
    uint64_t *p = mmap(NULL, DROPPABLE * MIB, PROT_READ | PROT_WRITE, MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(REFUSED);
    return p;
}

static size_t check_or_empty(uint64_t *p, uint64_t seed) {
    size_t wrong = 0;
    for (size_t page = 0; page < DROPPABLE * MIB / PAGE; page++) {
        size_t others = 0, words = 0;
        for (size_t i = page * 512; i < (page + 1) * 512; i++) others += p[i] != word(seed, i), words += p[i] != 0;
        wrong += others && words;
        dropped += !words;
    }
    return wrong;
}

int main(void) {
    uint64_t *early = droppable(), *late = NULL, *other = map(OTHER * MIB);
    size_t wrong = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        fill(early, DROPPABLE * MIB, round);
        if (late) fill(late, DROPPABLE * MIB, round + 10);
        // As the kernel does when it needs memory.
        MUST(madvise(early, DROPPABLE * MIB, MADV_PAGEOUT));
        if (late) MUST(madvise(late, DROPPABLE * MIB, MADV_PAGEOUT));
        fill(other, OTHER * MIB, round);
        wrong += check(other, OTHER * MIB, round) + check_or_empty(early, round);
        if (late) wrong += check_or_empty(late, round + 10);
        if (!late) late = droppable();
    }
    printf("wrong: %zu, any dropped: %d\n", wrong, dropped > 0);
    return wrong != 0;
}
