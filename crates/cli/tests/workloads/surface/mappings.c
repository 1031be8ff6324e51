// Calls that make, change and remove mappings.
#include "rows.h"
#include <sys/ipc.h>
#include <sys/shm.h>

enum { PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS };

static size_t fixed(uint64_t *area) {
    uint64_t *middle = byte_at(area, QUARTER);
    MUST((long)mmap(middle, HALF, RW, PRIVATE | MAP_FIXED, -1, 0));
    size_t wrong = check_empty(middle, HALF) + check_around(area);
    fill(middle, HALF, 5);
    evict(area, AREA);
    return wrong + check(middle, HALF, 5) + check_around(area);
}

static size_t fixed_noreplace(uint64_t *area) {
    told("mmap", (long)mmap(byte_at(area, QUARTER), HALF, RW, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0));
    return check(area, AREA, SEED);
}

static size_t file_over(uint64_t *area) {
    uint64_t *middle = byte_at(area, QUARTER);
    int file = open("surface.data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(file);
    uint64_t *contents = map(HALF);
    fill(contents, HALF, 9);
    if (write(file, contents, HALF) != HALF) return 1;
    MUST((long)mmap(middle, HALF, RW, MAP_PRIVATE | MAP_FIXED, file, 0));
    size_t wrong = check(middle, HALF, 9) + check_around(area);
    fill(middle, QUARTER, 6);
    evict(area, QUARTER);
    wrong += check(middle, QUARTER, 6) + check_part(middle, QUARTER, QUARTER, 9) + check_around(area);
    MUST(pread(file, contents, HALF, 0));
    unlink("surface.data");
    return wrong + check(contents, HALF, 9);
}

static size_t shared_over(uint64_t *area) {
    uint64_t *middle = byte_at(area, QUARTER);
    MUST((long)mmap(middle, HALF, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    size_t wrong = check_empty(middle, HALF) + check_around(area);
    wrong += IN_CHILD((fill(middle, HALF, 8), check_around(area)));
    return wrong + check(middle, HALF, 8);
}

static size_t populate_over(uint64_t *area) {
    uint64_t *middle = byte_at(area, QUARTER);
    MUST((long)mmap(middle, HALF, RW, PRIVATE | MAP_FIXED | MAP_POPULATE, -1, 0));
    return check_empty(middle, HALF) + check_around(area);
}

static size_t locked_over(uint64_t *area) {
    uint64_t *middle = byte_at(area, QUARTER);
    void *at = mmap(middle, HALF, RW, PRIVATE | MAP_FIXED | MAP_LOCKED, -1, 0);
    if (at == MAP_FAILED) return REFUSED;
    return check_empty(middle, HALF) + check_around(area);
}

// Memory with a flag that few programs use is evicted like any other.
static size_t flagged(int flag) {
    uint64_t *p = mmap(NULL, AREA, RW, PRIVATE | flag, -1, 0);
    MUST((long)p);
    fill(p, AREA, 12);
    evict(p, AREA);
    return check(p, AREA, 12);
}

static size_t flags(uint64_t *area) {
    return flagged(MAP_NORESERVE) + flagged(MAP_STACK) + flagged(MAP_32BIT) + check(area, AREA, SEED);
}

// A mapping that grows down when the page below is touched, before and after its pages are evicted.
static size_t grows_down(uint64_t *area) {
    char *around = mmap(NULL, 12 * MIB, PROT_NONE, PRIVATE, -1, 0);
    MUST((long)around);
    MUST(munmap(around + 2 * MIB, 10 * MIB));
    char *end = around + 8 * MIB;
    char *at = mmap(end - 16 * PAGE, 16 * PAGE, RW, PRIVATE | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0);
    MUST((long)at);
    size_t wrong = 0;
    for (size_t part = 1; part <= 4; part++) {
        for (size_t done = (part - 1) * MIB; done < part * MIB; done += PAGE)
            fill((uint64_t *)(end - done - PAGE), PAGE, done);
        evict(end - part * MIB, MIB);
        for (size_t done = 0; done < part * MIB; done += PAGE)
            wrong += check((uint64_t *)(end - done - PAGE), PAGE, done);
    }
    return wrong + check(area, AREA, SEED);
}

static size_t unmapped(uint64_t *area) {
    uint64_t *middle = byte_at(area, QUARTER);
    MUST(munmap(middle, HALF));
    size_t wrong = faults((char *)middle, 0) != SEGV_MAPERR;
    MUST((long)mmap(middle, HALF, RW, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0));
    wrong += check_empty(middle, HALF) + check_around(area);
    MUST(munmap(area, AREA));
    return wrong;
}

static size_t brk_(uint64_t *area) {
    uint64_t *p = sbrk(AREA);
    MUST((long)p);
    fill(p, AREA, 4);
    evict(p, AREA);
    MUST((long)sbrk(-HALF));
    MUST((long)sbrk(HALF));
    size_t wrong = check_part(p, 0, HALF, 4) + check_empty(byte_at(p, HALF), HALF);
    fill(byte_at(p, HALF), HALF, 5);
    evict(p, AREA);
    return wrong + check(byte_at(p, HALF), HALF, 5) + check(area, AREA, SEED);
}

static size_t no_access(uint64_t *area) {
    char *middle = byte_at(area, QUARTER);
    MUST(mprotect(middle, HALF, PROT_NONE));
    size_t wrong = faults(middle, 0) != SEGV_ACCERR;
    wrong += faults(middle + HALF - 1, 1) != SEGV_ACCERR;
    wrong += check_around(area);
    MUST(mprotect(middle, HALF, RW));
    return wrong + check(area, AREA, SEED);
}

static size_t read_only(uint64_t *area) {
    MUST(mprotect(area, AREA, PROT_READ));
    size_t wrong = faults(byte_at(area, QUARTER), 1) != SEGV_ACCERR;
    wrong += check(area, AREA, SEED);
    evict(area, AREA / 2);
    wrong += faults(byte_at(area, QUARTER), 1) != SEGV_ACCERR;
    MUST(mprotect(area, AREA, RW));
    wrong += check(area, AREA, SEED);
    fill(area, AREA, 2);
    return wrong + check(area, AREA, 2);
}

static size_t executable(uint64_t *area) {
    if (mprotect(area, AREA, RW | PROT_EXEC)) return REFUSED;
    size_t wrong = check(area, AREA, SEED);
    // mov eax, 42; ret
    static const unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3};
    char *at = byte_at(area, QUARTER);
    memcpy(at, code, sizeof code);
    evict(area, AREA);
    wrong += ((int (*)(void))at)() != 42;
    return wrong + check_part(area, HALF, HALF, SEED);
}

// Each second page gets another access: the mapping is cut into as many parts.
static size_t cut_by_access(uint64_t *area) {
    for (size_t at = 0; at < AREA; at += 2 * PAGE) MUST(mprotect(byte_at(area, at), PAGE, PROT_READ));
    size_t wrong = check(area, AREA, SEED);
    evict(area, AREA);
    for (size_t at = 0; at < AREA; at += 2 * PAGE) MUST(mprotect(byte_at(area, at), PAGE, RW));
    return wrong + check(area, AREA, SEED);
}

static size_t protection_keys(uint64_t *area) {
    int key = pkey_alloc(0, 0);
    if (key < 0) return REFUSED;
    MUST(pkey_mprotect(area, HALF, RW, key));
    MUST(pkey_set(key, PKEY_DISABLE_ACCESS));
    size_t wrong = faults((char *)area, 0) != SEGV_PKUERR;
    wrong += check_part(area, HALF, HALF, SEED);
    MUST(pkey_set(key, PKEY_DISABLE_WRITE));
    wrong += check_part(area, 0, HALF, SEED) + (faults((char *)area, 1) != SEGV_PKUERR);
    // Pages with a key stay, those without one leave.
    MUST(pkey_set(key, PKEY_DISABLE_ACCESS));
    evict(byte_at(area, HALF), HALF);
    MUST(pkey_set(key, 0));
    return wrong + check(area, AREA, SEED);
}

static size_t moved_larger(uint64_t *area) {
    uint64_t *p = mremap(area, AREA, 3 * AREA, MREMAP_MAYMOVE);
    MUST((long)p);
    size_t wrong = check(p, AREA, SEED) + check_empty(byte_at(p, AREA), 2 * AREA);
    fill(byte_at(p, AREA), AREA, 8);
    evict(p, 2 * AREA);
    return wrong + check(p, AREA, SEED) + check(byte_at(p, AREA), AREA, 8);
}

static size_t made_smaller(uint64_t *area) {
    MUST((long)mremap(area, AREA, HALF, 0));
    size_t wrong = faults(byte_at(area, HALF), 0) != SEGV_MAPERR;
    MUST((long)mmap(byte_at(area, HALF), HALF, RW, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0));
    return wrong + check_part(area, 0, HALF, SEED) + check_empty(byte_at(area, HALF), HALF);
}

static size_t moved_over(uint64_t *area) {
    uint64_t *other = evicted(AREA, 7);
    MUST((long)mremap(byte_at(area, QUARTER), HALF, HALF, MREMAP_MAYMOVE | MREMAP_FIXED, byte_at(other, HALF)));
    size_t wrong = check_around(area) + check_part(other, 0, HALF, 7);
    for (size_t i = 0; i < HALF / 8; i++) wrong += other[HALF / 8 + i] != word(SEED, QUARTER / 8 + i);
    return wrong + (faults(byte_at(area, QUARTER), 0) != SEGV_MAPERR);
}

static size_t moved_and_kept(uint64_t *area) {
    uint64_t *p = mremap(area, AREA, AREA, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
    if (p == MAP_FAILED) return REFUSED;
    size_t wrong = check(p, AREA, SEED) + check_empty(area, AREA);
    fill(area, AREA, 6);
    evict(area, AREA);
    evict(p, AREA);
    return wrong + check(area, AREA, 6) + check(p, AREA, SEED);
}

// An old length of zero would duplicate a shared mapping.
static size_t moved_from_nothing(uint64_t *area) {
    told("mremap", (long)mremap(area, 0, AREA, MREMAP_MAYMOVE));
    return check(area, AREA, SEED);
}

// Several mappings by one call (Linux 6.17; an error before).
static size_t moved_in_parts(uint64_t *area) {
    for (size_t at = 0; at < AREA; at += 64 * PAGE) MUST(mprotect(byte_at(area, at), PAGE, PROT_READ));
    uint64_t *to = map(AREA);
    long moved = (long)mremap(area, AREA, AREA, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    told("mremap", moved);
    return check(moved < 0 ? area : to, AREA, SEED);
}

// Page by page, into another order.
static size_t moved_by_pages(uint64_t *area) {
    uint64_t *to = map(AREA);
    size_t wrong = 0;
    for (size_t at = 0; at < AREA; at += 4 * PAGE)
        MUST((long)mremap(byte_at(area, at), PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, byte_at(to, AREA - PAGE - at)));
    for (size_t at = 0; at < AREA; at += PAGE) {
        const uint64_t *page = at % (4 * PAGE) ? byte_at(area, at) : byte_at(to, AREA - PAGE - at);
        for (size_t i = 0; i < 512; i++) wrong += page[i] != word(SEED, at / 8 + i);
    }
    return wrong;
}

static size_t system_v_over(uint64_t *area) {
    int segment = shmget(IPC_PRIVATE, HALF, IPC_CREAT | 0600);
    if (segment < 0) return REFUSED;
    uint64_t *middle = byte_at(area, QUARTER);
    void *at = shmat(segment, middle, SHM_REMAP);
    MUST(shmctl(segment, IPC_RMID, NULL));
    MUST((long)at);
    size_t wrong = check_empty(middle, HALF) + check_around(area);
    fill(middle, HALF, 5);
    wrong += check(middle, HALF, 5);
    MUST(shmdt(at));
    return wrong + check_around(area) + (faults((char *)middle, 0) != SEGV_MAPERR);
}

static size_t memory_files(uint64_t *area) {
    int file = memfd_create("surface", MFD_CLOEXEC);
    MUST(file);
    MUST(ftruncate(file, AREA));
    uint64_t *shared = mmap(NULL, AREA, RW, MAP_SHARED, file, 0), *own = mmap(NULL, AREA, RW, MAP_PRIVATE, file, 0);
    MUST((long)shared);
    MUST((long)own);
    fill(shared, AREA, 5);
    size_t wrong = check(own, AREA, 5);
    fill(own, HALF, 6);
    evict(area, AREA);
    wrong += check(own, HALF, 6) + check_part(own, HALF, HALF, 5) + check(shared, AREA, 5);
    // From evicted memory into the file, and back.
    if (pwrite(file, area, AREA, 0) != AREA) return 1;
    return wrong + check(shared, AREA, SEED) + check(own, HALF, 6) + check(area, AREA, SEED);
}

static size_t secret_memory(uint64_t *area) {
    int file = syscall(447, 0);
    if (file < 0 || ftruncate(file, 16 * PAGE)) return REFUSED;
    uint64_t *p = mmap(NULL, 16 * PAGE, RW, MAP_SHARED, file, 0);
    if (p == MAP_FAILED) return REFUSED;
    fill(p, 16 * PAGE, 5);
    evict(area, AREA);
    return check(p, 16 * PAGE, 5) + check(area, AREA, SEED);
}

static size_t huge_pages_over(uint64_t *area) {
    char *p = mmap(NULL, 6 * MIB, RW, PRIVATE, -1, 0);
    char *aligned = (char *)(((uintptr_t)p + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
    MUST((long)p);
    fill((uint64_t *)aligned, 4 * MIB, 4);
    evict(aligned, 4 * MIB);
    void *at = mmap(aligned, 2 * MIB, RW, PRIVATE | MAP_FIXED | MAP_HUGETLB, -1, 0);
    if (at == MAP_FAILED) return REFUSED;
    size_t wrong = check_empty((uint64_t *)aligned, 2 * MIB);
    return wrong + check_part((uint64_t *)aligned, 2 * MIB, 2 * MIB, 4) + check(area, AREA, SEED);
}

static size_t sealed(uint64_t *area) {
    if (syscall(462, area, (size_t)HALF, 0)) return REFUSED;
    told("munmap", munmap(area, AREA));
    told("mprotect", mprotect(area, AREA, PROT_READ));
    told("mremap", (long)mremap(area, AREA, 2 * AREA, MREMAP_MAYMOVE));
    told("mmap", (long)mmap(area, HALF, RW, PRIVATE | MAP_FIXED, -1, 0));
    size_t wrong = check(area, AREA, SEED);
    evict(area, AREA);
    wrong += check(area, AREA, SEED);
    fill(area, AREA, 2);
    evict(area, AREA);
    return wrong + check(area, AREA, 2);
}

const struct row rows[] = {
    {"mmap-fixed", fixed},
    {"mmap-fixed-noreplace", fixed_noreplace},
    {"mmap-file", file_over},
    {"mmap-shared", shared_over},
    {"mmap-populate", populate_over},
    {"mmap-locked", locked_over},
    {"mmap-flags", flags},
    {"mmap-growsdown", grows_down},
    {"mmap-hugetlb", huge_pages_over},
    {"munmap", unmapped},
    {"brk", brk_},
    {"mprotect-none", no_access},
    {"mprotect-read", read_only},
    {"mprotect-exec", executable},
    {"mprotect-cut", cut_by_access},
    {"pkey", protection_keys},
    {"mremap-grow", moved_larger},
    {"mremap-shrink", made_smaller},
    {"mremap-fixed", moved_over},
    {"mremap-dontunmap", moved_and_kept},
    {"mremap-zero", moved_from_nothing},
    {"mremap-parts", moved_in_parts},
    {"mremap-pages", moved_by_pages},
    {"shmat-remap", system_v_over},
    {"memfd", memory_files},
    {"memfd-secret", secret_memory},
    {"mseal", sealed},
    {NULL, NULL},
};
