// Pages freed with MADV_FREE before and after memory gets short; the kernel drops some of them without an event (here by
// MADV_PAGEOUT). Each must read as it was or as zeros, and all others as they were written.
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

enum { BYTES = 24 << 20, PAGE = 4096 };

static size_t wrong;

static unsigned char *map(void) {
    unsigned char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(2);
    return p;
}

static void fill_part(unsigned char *p, size_t seed, size_t from, size_t to) {
    for (size_t i = from; i < to; i += PAGE) p[i] = (unsigned char)(1 + (i / PAGE + seed) % 255), p[i + 9] = 7;
}

static void fill(unsigned char *p, size_t seed) { fill_part(p, seed, 0, BYTES); }

static void check(const unsigned char *p, size_t seed, int freed) {
    for (size_t i = 0; i < BYTES; i += PAGE) {
        int old = p[i] == 1 + (i / PAGE + seed) % 255 && p[i + 9] == 7;
        wrong += !(old || (freed && p[i] == 0 && p[i + 9] == 0));
    }
}

int main(void) {
    unsigned char *early = map(), *late = map(), *kept = map();
    fill(early, 1);
    // Before anything is registered.
    madvise(early, BYTES, MADV_FREE);
    fill(kept, 2);
    fill_part(late, 3, 0, BYTES / 3);
    // Registered by now, of 2.75 times this size, and not taken away yet.
    madvise(early, BYTES / 2, MADV_PAGEOUT);
    check(early, 1, 1);
    fill(early, 1);
    madvise(early, BYTES, MADV_FREE);
    fill(late, 3);
    madvise(early, BYTES / 2, MADV_PAGEOUT);
    check(kept, 2, 0);
    madvise(late, BYTES, MADV_FREE);
    madvise(late, BYTES / 2, MADV_PAGEOUT);
    for (int round = 0; round < 4; round++) {
        fill(kept, 4 + round);
        check(kept, 4 + round, 0);
    }
    check(early, 1, 1);
    check(late, 3, 1);
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
