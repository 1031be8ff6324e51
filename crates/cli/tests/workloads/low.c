// A program that uses the lowest addresses, which programs seldom have: 0x1000 to 0xffff.
#include "pages.h"

enum { LOW = 0x1000, LOW_END = 0x10000, OTHER = 60, ROUNDS = 3 };

int main(void) {
    void *at = mmap((void *)LOW, LOW_END - LOW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (at != (void *)LOW) return REFUSED;
    uint64_t *volatile low = at;
    fill(low, LOW_END - LOW, 7);
    uint64_t *other = map(OTHER * MIB);
    size_t wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        fill(other, OTHER * MIB, round);
        wrong += check(low, LOW_END - LOW, 7) + check(other, OTHER * MIB, round);
        // An event tells the pager what is freed.
        MUST(madvise(other, OTHER * MIB / 4, MADV_DONTNEED));
        wrong += check_empty(other, OTHER * MIB / 4);
    }
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
