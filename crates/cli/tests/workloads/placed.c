// A program that looks for free addresses behind its mappings with mincore, and maps memory there. It must stay its own.
#include "pages.h"
#include <sys/syscall.h>

#define KEPT (40 * MIB)
enum { TRIES = 8, PLACED = 64, SMALL = 200 };

// Whether nothing is mapped at any page of a range.
static int is_free(char *at, size_t pages) {
    unsigned char there;
    for (size_t i = 0; i < pages; i++)
        if (!mincore(at + i * PAGE, PAGE, &there) || errno != ENOMEM) return 0;
    return 1;
}

int main(void) {
    uint64_t *kept = map(KEPT);
    fill(kept, KEPT, 1);
    wait_until_paged(KEPT);
    uint64_t *placed[TRIES];
    size_t found = 0, wrong = 0;
    for (int i = 0; i < TRIES; i++) {
        void *from = map(PLACED * PAGE);
        char *at = (char *)map(PAGE) + (i % 2 ? 1 : 17) * PAGE;
        if (!is_free(at, PLACED)) continue;
        placed[found] = (uint64_t *)at;
        if (i % 4 < 2) {
            int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
            int access = PROT_READ | PROT_WRITE;
            if (i < TRIES / 2) MUST((intptr_t)mmap(at, PLACED * PAGE, access, flags, -1, 0));
            else MUST(syscall(SYS_mmap, at, PLACED * PAGE, access, flags, -1, 0));
        } else {
            int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
            if (i < TRIES / 2) MUST((intptr_t)mremap(from, PLACED * PAGE, PLACED * PAGE, flags, at));
            else MUST(syscall(SYS_mremap, from, PLACED * PAGE, PLACED * PAGE, flags, at));
        }
        fill(placed[found], PLACED * PAGE, 2 + found);
        found++;
        uint64_t *others[SMALL];
        for (int k = 0; k < SMALL; k++) fill(others[k] = map(2 * PAGE), 2 * PAGE, 100 + (uint64_t)k);
        for (int k = 0; k < SMALL; k++) wrong += check(others[k], 2 * PAGE, 100 + (uint64_t)k);
        for (size_t k = 0; k < found; k++) wrong += check(placed[k], PLACED * PAGE, 2 + k);
        for (int k = 0; k < SMALL; k++) MUST(munmap(others[k], 2 * PAGE));
    }
    wrong += check(kept, KEPT, 1);
    // Without memfit the kernel maps downwards, and little is free behind a mapping.
    wrong += preloaded_memfit() && !found;
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
