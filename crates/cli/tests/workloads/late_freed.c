// Memory that is mapped while the program is paged, filled, and freed with MADV_FREE before memfit finds it. The kernel
// drops it later (here by MADV_PAGEOUT), without an event. Each page must read as it was or as zeros.
#include "pages.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

#define KEPT (40 * MIB)
enum { REGIONS = 400, PAGES = 16 };

// Places in a reservation with a gap behind each: memfit finds mappings there later than others.
static uint64_t *page_of(char *span, size_t region, size_t page) {
    return (uint64_t *)(span + (region * PAGES * 2 + page) * PAGE);
}

int main(void) {
    uint64_t *kept = map(KEPT);
    fill(kept, KEPT, 1);
    wait_until_paged(KEPT);
    char *span = mmap(NULL, REGIONS * PAGES * 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST((intptr_t)span);
    size_t wrong = 0, dropped = 0;
    for (size_t i = 0; i < REGIONS; i++) {
        uint64_t *region = page_of(span, i, 0);
        int access = PROT_READ | PROT_WRITE;
        MUST((intptr_t)mmap(region, PAGES * PAGE, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
        for (size_t p = 0; p < PAGES; p++) fill(page_of(span, i, p), PAGE, i * PAGES + p);
        MUST(madvise(region, PAGES * PAGE, MADV_FREE));
        usleep(2000);
    }
    for (size_t i = 0; i < REGIONS; i++) {
        MUST(madvise(page_of(span, i, 0), PAGES * PAGE, MADV_PAGEOUT));
        for (size_t p = 0; p < PAGES; p++) {
            uint64_t *page = page_of(span, i, p);
            int empty = check_empty(page, PAGE) == 0;
            dropped += (size_t)empty;
            wrong += !empty && check(page, PAGE, i * PAGES + p) != 0;
        }
    }
    wrong += check(kept, KEPT, 1);
    printf("wrong: %zu, dropped: %d\n", wrong, dropped > 0);
    return wrong != 0;
}
