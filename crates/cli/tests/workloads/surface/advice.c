// Calls that advise, lock, ask about and name memory.
#include "rows.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

static size_t dropped(uint64_t *area, int advice) {
    uint64_t *middle = byte_at(area, QUARTER);
    if (madvise(middle, HALF, advice)) return REFUSED;
    size_t wrong = check_empty(middle, HALF) + check_around(area);
    fill(middle, HALF, 5);
    evict(area, AREA);
    return wrong + check(middle, HALF, 5) + check_around(area);
}

static size_t dontneed(uint64_t *area) {
    return dropped(area, MADV_DONTNEED);
}

static size_t dontneed_locked(uint64_t *area) {
    return dropped(area, MADV_DONTNEED_LOCKED);
}

// The kernel may drop each page, or not, until the program writes to it again.
static size_t freed(uint64_t *area) {
    uint64_t *middle = byte_at(area, QUARTER);
    MUST(madvise(middle, HALF, MADV_FREE));
    size_t wrong = check_around(area);
    for (size_t i = 0; i < HALF / 8; i++) {
        uint64_t now = *(volatile uint64_t *)(middle + i);
        wrong += now != 0 && now != word(SEED, QUARTER / 8 + i);
    }
    fill(middle, HALF, 5);
    evict(area, AREA);
    return wrong + check(middle, HALF, 5) + check_around(area);
}

// Advice that changes no contents; says whether the kernel took it.
static size_t unchanged_by(uint64_t *area, const char *name, int advice) {
    told(name, madvise(byte_at(area, QUARTER), HALF, advice));
    size_t wrong = check(area, AREA, SEED);
    evict(area, AREA);
    return wrong + check(area, AREA, SEED);
}

static size_t order(uint64_t *area) {
    return unchanged_by(area, "MADV_RANDOM", MADV_RANDOM) + unchanged_by(area, "MADV_SEQUENTIAL", MADV_SEQUENTIAL) +
           unchanged_by(area, "MADV_NORMAL", MADV_NORMAL);
}

static size_t willneed(uint64_t *area) {
    return unchanged_by(area, "MADV_WILLNEED", MADV_WILLNEED);
}

static size_t cold(uint64_t *area) {
    return unchanged_by(area, "MADV_COLD", MADV_COLD) + unchanged_by(area, "MADV_PAGEOUT", MADV_PAGEOUT);
}

static size_t populated(uint64_t *area) {
    size_t wrong = unchanged_by(area, "MADV_POPULATE_READ", MADV_POPULATE_READ);
    wrong += unchanged_by(area, "MADV_POPULATE_WRITE", MADV_POPULATE_WRITE);
    uint64_t *unused = map(HALF);
    told("new", madvise(unused, HALF, MADV_POPULATE_WRITE));
    return wrong + check_empty(unused, HALF);
}

static size_t huge(uint64_t *area) {
    size_t wrong = unchanged_by(area, "MADV_HUGEPAGE", MADV_HUGEPAGE);
    // Whether the kernel takes that depends on what it finds.
    madvise(area, AREA, MADV_COLLAPSE);
    wrong += check(area, AREA, SEED);
    return wrong + unchanged_by(area, "MADV_NOHUGEPAGE", MADV_NOHUGEPAGE);
}

static size_t removed(uint64_t *area) {
    return unchanged_by(area, "MADV_REMOVE", MADV_REMOVE);
}

static size_t merged(uint64_t *area) {
    if (madvise(area, AREA, MADV_MERGEABLE)) return REFUSED;
    for (size_t at = QUARTER; at < HALF; at += PAGE) fill(byte_at(area, at), PAGE, SEED);
    evict(area, AREA);
    size_t wrong = check_around(area);
    for (size_t at = QUARTER; at < HALF; at += PAGE) wrong += check(byte_at(area, at), PAGE, SEED);
    MUST(madvise(area, AREA, MADV_UNMERGEABLE));
    return wrong + check_around(area);
}

static size_t undumped(uint64_t *area) {
    return unchanged_by(area, "MADV_DONTDUMP", MADV_DONTDUMP) + unchanged_by(area, "MADV_DODUMP", MADV_DODUMP);
}

static long advise_process(int process, void *at, size_t bytes, int advice) {
    struct iovec range = {at, bytes};
    return syscall(SYS_process_madvise, process, &range, 1, advice, 0);
}

static size_t by_process(uint64_t *area) {
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    if (self < 0) return REFUSED;
    static const int all[] = {MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED};
    size_t wrong = 0;
    for (int i = 0; i < 3; i++) {
        told("of itself", advise_process(self, area, AREA, all[i]));
        wrong += check(area, AREA, SEED);
        evict(area, AREA);
    }
    // Of another process it takes CAP_SYS_NICE.
    wrong += IN_CHILD(advise_process(self, area, AREA, MADV_PAGEOUT) < 0 && errno != EPERM);
    // Linux 6.13 permits it.
    long dropped = advise_process(self, byte_at(area, QUARTER), HALF, MADV_DONTNEED);
    told("drop", dropped);
    wrong += check_around(area);
    return wrong + (dropped < 0 ? check(area, AREA, SEED) : check_empty(byte_at(area, QUARTER), HALF));
}

static size_t locked(uint64_t *area) {
    if (mlock(byte_at(area, QUARTER), HALF)) return REFUSED;
    size_t wrong = outside(byte_at(area, QUARTER), HALF) + check(area, AREA, SEED);
    uint64_t *other = evicted(AREA, 8);
    wrong += outside(byte_at(area, QUARTER), HALF) + check(other, AREA, 8);
    MUST(munlock(byte_at(area, QUARTER), HALF));
    evict(area, AREA);
    return wrong + check(area, AREA, SEED);
}

static size_t locked_later(uint64_t *area) {
    if (mlock2(area, HALF, MLOCK_ONFAULT)) return REFUSED;
    size_t wrong = check(area, HALF, SEED);
    uint64_t *other = evicted(AREA, 8);
    wrong += outside(area, HALF) + check(area, AREA, SEED) + check(other, AREA, 8);
    MUST(munlock(area, HALF));
    evict(area, AREA);
    return wrong + check(area, AREA, SEED);
}

static size_t synchronised(uint64_t *area) {
    told("MS_SYNC", msync(area, AREA, MS_SYNC));
    told("MS_ASYNC", msync(area, AREA, MS_ASYNC));
    told("MS_INVALIDATE", msync(area, AREA, MS_SYNC | MS_INVALIDATE));
    return check(area, AREA, SEED);
}

static size_t asked(uint64_t *area) {
    static unsigned char there[AREA / PAGE];
    told("mincore", mincore(area, AREA, there));
    char line[256];
    const char *names[] = {"/proc/self/smaps", "/proc/self/smaps_rollup", "/proc/self/numa_maps", "/proc/self/maps"};
    for (int i = 0; i < 4; i++) {
        FILE *file = fopen(names[i], "r");
        if (!file) continue;
        while (fgets(line, sizeof line, file)) {}
        fclose(file);
    }
    return check(area, AREA, SEED);
}

static size_t references_cleared(uint64_t *area) {
    size_t wrong = 0;
    for (char what = '1'; what <= '5'; what++) {
        int file = open("/proc/self/clear_refs", O_WRONLY);
        if (file < 0) return REFUSED;
        // Without soft-dirty bits in the kernel 4 is an error.
        if (write(file, &what, 1) != 1 && errno != EINVAL) wrong++;
        close(file);
        wrong += check_part(area, HALF, HALF, SEED);
    }
    return wrong + check(area, AREA, SEED);
}

static size_t named(uint64_t *area) {
    if (prctl(PR_SET_VMA, 0, byte_at(area, QUARTER), (size_t)HALF, "surface")) return REFUSED;
    size_t wrong = check(area, AREA, SEED);
    evict(area, AREA);
    wrong += check(area, AREA, SEED);
    MUST(prctl(PR_SET_VMA, 0, byte_at(area, QUARTER), (size_t)HALF, NULL));
    evict(area, AREA);
    return wrong + check(area, AREA, SEED);
}

static size_t placed(uint64_t *area) {
    unsigned long node = 1, mask = 0;
    int at = -1;
    // MPOL_BIND with MPOL_MF_MOVE; MPOL_F_NODE | MPOL_F_ADDR.
    if (syscall(SYS_mbind, area, (size_t)HALF, 2, &node, 64ul, 2)) return REFUSED;
    told("node", syscall(SYS_get_mempolicy, &at, &mask, 64ul, byte_at(area, HALF), 3ul));
    printf("node %d\n", at);
    void *pages[2] = {area, byte_at(area, HALF)};
    int nodes[2] = {0, 0}, status[2];
    told("move", syscall(SYS_move_pages, 0, 2ul, pages, nodes, status, 2));
    told("ask", syscall(SYS_move_pages, 0, 2ul, pages, NULL, status, 0));
    told("migrate", syscall(SYS_migrate_pages, 0, 64ul, &node, &node));
    size_t wrong = check(area, AREA, SEED);
    evict(area, AREA);
    return wrong + check(area, AREA, SEED);
}

static size_t barriers(uint64_t *area) {
    // Query; register and use of the private expedited barrier; the global one.
    static const int all[] = {16, 8, 1};
    if (syscall(SYS_membarrier, 0, 0, 0) < 0) return REFUSED;
    for (int i = 0; i < 3; i++) told("membarrier", syscall(SYS_membarrier, all[i], 0, 0));
    return check(area, AREA, SEED);
}

static size_t without_huge_pages(uint64_t *area) {
    // PR_SET_THP_DISABLE.
    if (prctl(41, 1, 0, 0, 0)) return REFUSED;
    uint64_t *p = evicted(AREA, 4);
    return check(p, AREA, 4) + check(area, AREA, SEED);
}

const struct row rows[] = {
    {"madvise-dontneed", dontneed},
    {"madvise-dontneed-locked", dontneed_locked},
    {"madvise-free", freed},
    {"madvise-order", order},
    {"madvise-willneed", willneed},
    {"madvise-cold", cold},
    {"madvise-populate", populated},
    {"madvise-hugepage", huge},
    {"madvise-remove", removed},
    {"madvise-mergeable", merged},
    {"madvise-dontdump", undumped},
    {"process_madvise", by_process},
    {"mlock", locked},
    {"mlock2", locked_later},
    {"msync", synchronised},
    {"mincore", asked},
    {"clear_refs", references_cleared},
    {"prctl-vma-name", named},
    {"prctl-thp-disable", without_huge_pages},
    {"mbind", placed},
    {"membarrier", barriers},
    {NULL, NULL},
};
