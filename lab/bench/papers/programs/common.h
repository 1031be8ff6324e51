/* What the programs of lab/bench/papers share: page contents that compress as asked and can be told from others, time, and the lines
 * that the harness reads. Exit 1: memory does not hold what was written; 2: wrong arguments. */
#ifndef COMMON_H
#define COMMON_H
#include "../../workloads/pages.h"
#include <time.h>
#include <unistd.h>

/* In each 64 bytes the first round(64 * permille / 1000) are random, the others 0; below one byte, 4 random bytes in some of the
 * blocks of 64. The random bytes follow from page and version. */
static inline void interleaved_make(unsigned char *p, uint64_t page, uint64_t version, unsigned permille) {
    unsigned bytes = (64 * permille + 500) / 1000, every = 1;
    if (permille && !bytes) {
        every = (4000 + 32 * permille) / (64 * permille);
        bytes = 4;
    }
    uint64_t s = mix64(page * 0x100000001b3ull + version);
    memset(p, 0, PAGE);
    for (unsigned block = 0; bytes && block < PAGE; block += 64 * every)
        for (unsigned i = 0; i < bytes; i += 8) {
            s = mix64(s);
            memcpy(p + block + i, &s, bytes - i < 8 ? bytes - i : 8);
        }
}

static inline void wrong(const char *what, uint64_t where) {
    fprintf(stderr, "MISMATCH %s %llu\n", what, (unsigned long long)where);
    exit(1);
}

static inline void interleaved_check(const unsigned char *p, uint64_t page, uint64_t version, unsigned permille) {
    unsigned char want[PAGE];
    interleaved_make(want, page, version, permille);
    if (memcmp(p, want, PAGE) != 0) wrong("page", page);
}

static inline double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* The programs of the papers ran for minutes and hours, long after an area that adapts had its size. What was written to
 * disk before would come from there at its first touch: so each page is read and written twice before the phase that counts. */
enum { WARM_PASSES = 2 };

static inline void interleaved_warm(unsigned char *mem, uint32_t *versions, uint64_t pages, unsigned permille) {
    for (uint64_t p = 0; p < pages; p++) interleaved_make(mem + p * PAGE, p, 0, permille);
    for (int pass = 0; pass < WARM_PASSES; pass++)
        for (uint64_t p = 0; p < pages; p++) {
            interleaved_check(mem + p * PAGE, p, versions[p], permille);
            interleaved_make(mem + p * PAGE, p, ++versions[p], permille);
        }
}

/* The time of the phase that counts. */
static inline void measured(double since) {
    printf("measured %.6f\n", seconds() - since);
    fflush(stdout);
}

/* The harness looks at the counters now, and answers with a line. */
static inline void sample(const char *label) {
    printf("sample %s\n", label);
    fflush(stdout);
    int c;
    while ((c = getchar()) != '\n' && c != EOF) {}
}
#endif
