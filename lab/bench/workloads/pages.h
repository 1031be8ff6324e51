/* Page contents that can be regenerated from (page, version), so that every
 * page can be verified at any time. Records of tags, pointers, small integers,
 * zeros and now and then a hash: about 3:1 under LZ4. NOISE or MIXED: other contents. */
#ifndef PAGES_H
#define PAGES_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096u
#define WORDS (PAGE / 8)
#define RECORD 16u

static inline uint64_t mix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static inline void page_make_records(uint64_t *w, uint64_t page, uint64_t version) {
    uint64_t s = mix64(page * 0x100000001b3ull + version);
    const uint64_t heap = 0x00007f3a40000000ull, parent = heap + (page << 6);
    for (unsigned r = 0; r < WORDS; r += RECORD) {
        uint64_t x = s = mix64(s);
        uint64_t *q = w + r;
        q[0] = 0x10 + (x & 3);
        q[1] = heap + ((x >> 2) & 0xffff) * 64;
        q[2] = parent;
        q[3] = (x >> 20) & 0xff;
        q[4] = 1;
        q[5] = 0;
        q[6] = heap + ((x >> 30) & 0xffff) * 64;
        q[7] = parent;
        q[8] = 0x100;
        q[9] = 0;
        q[10] = r % (4 * RECORD) ? 0 : x;
        q[11] = version;
        q[12] = q[13] = q[14] = 0;
        q[15] = (x >> 40) & 0xff;
    }
}

#ifdef NOISE
/* Of eight words the first NOISE are random, the others 0: 8 is incompressible, 4 gives 2:1. */
static inline void page_make(uint64_t *w, uint64_t page, uint64_t version) {
    uint64_t s = mix64(page * 0x100000001b3ull + version);
    for (unsigned i = 0; i < WORDS; i++) w[i] = i % 8 < NOISE ? (s = mix64(s)) : 0;
}
#elif defined(MIXED)
/* MIXED of a hundred pages are random bytes, the others records. */
static inline void page_make(uint64_t *w, uint64_t page, uint64_t version) {
    if (mix64(page) % 100 >= MIXED) {
        page_make_records(w, page, version);
        return;
    }
    uint64_t s = mix64(page * 0x100000001b3ull + version);
    for (unsigned i = 0; i < WORDS; i++) w[i] = s = mix64(s);
}
#else
static inline void page_make(uint64_t *w, uint64_t page, uint64_t version) {
    page_make_records(w, page, version);
}
#endif

/* Exit 3: memory does not hold what was written to it. */
static inline uint64_t page_check(const unsigned char *p, uint64_t page, uint64_t version) {
    uint64_t want[WORDS];
    page_make(want, page, version);
    if (memcmp(p, want, PAGE) != 0) {
        const uint64_t *got = (const uint64_t *)p;
        unsigned i = 0;
        while (i < WORDS && got[i] == want[i]) i++;
        fprintf(stderr, "MISMATCH page %llu version %llu word %u: %016llx, expected %016llx\n",
                (unsigned long long)page, (unsigned long long)version, i,
                (unsigned long long)(i < WORDS ? got[i] : 0),
                (unsigned long long)(i < WORDS ? want[i] : 0));
        exit(3);
    }
    return want[1] ^ want[WORDS - 1];
}

static inline void page_store(unsigned char *p, uint64_t page, uint64_t version) {
    uint64_t w[WORDS];
    page_make(w, page, version);
    memcpy(p, w, PAGE);
}

static inline unsigned char *pages_map(uint64_t pages) {
    void *m = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) { perror("mmap"); exit(1); }
    return m;
}

static inline uint64_t arg_u64(int argc, char **argv, int i, uint64_t otherwise) {
    if (i >= argc) return otherwise;
    char *end;
    unsigned long long v = strtoull(argv[i], &end, 10);
    if (*end || end == argv[i]) { fprintf(stderr, "not a number: %s\n", argv[i]); exit(2); }
    return v;
}
#endif
