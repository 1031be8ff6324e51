// Guard pages (MADV_GUARD_INSTALL, Linux 6.13) over memory that is evicted, present, and never used. The call is made by
// libc's function, by its syscall(), or, for memory never used, by a bare instruction as in glibc ("libc", "syscall",
// "bare").
#include "pages.h"
#include <sys/resource.h>
#include <sys/syscall.h>

enum { INSTALL = 102, REMOVE = 103, OUTSIDE = 16, PRESENT = 2, UNUSED = 2, OTHER = 60, FIRST = 28, GUARDED = 200 };

static char how;
static int ends[2];

static int advise(void *at, size_t bytes, int advice) {
    if (how == 'l') return madvise(at, bytes, advice);
    if (how == 's') return (int)syscall(SYS_madvise, at, bytes, advice);
    long result = bare(SYS_madvise, (long)at, bytes, advice);
    if (result >= 0) return 0;
    errno = (int)-result;
    return -1;
}

// Pages of a range that can be read.
static size_t readable(void *at, size_t bytes, size_t step) {
    size_t found = 0;
    char byte;
    for (size_t i = 0; i < bytes; i += step) {
        if (write(ends[1], (char *)at + i, 1) == 1) {
            MUST(read(ends[0], &byte, 1));
            found++;
        }
    }
    return found;
}

// Puts guards over a range and removes them: the range must read as zeros.
static size_t guard(uint64_t *p, size_t bytes) {
    MUST(advise(p, bytes, INSTALL));
    size_t wrong = readable(p, bytes, PAGE);
    MUST(advise(p, bytes, REMOVE));
    return wrong + check_empty(p, bytes);
}

// Calls that fail. If the kernel has done nothing, the contents stay; else what it did is told. The range of the last one is
// far too large to go over it page by page.
static size_t refused(void) {
    size_t wrong = 0, bytes = 48 * PAGE, far = (size_t)16 << 40;
    char *p = (char *)map(bytes);
    fill((uint64_t *)p, bytes, 7);
    wrong += !advise(p + 1, 8 * PAGE, INSTALL) || errno != EINVAL;
    wrong += !advise(p, -2 * PAGE, INSTALL) || errno != EINVAL;
    wrong += check((uint64_t *)p, bytes, 7);
    // The second part cannot have guards.
    MUST(mlock(p + 16 * PAGE, PAGE));
    wrong += !advise(p, bytes, INSTALL) || errno != EINVAL;
    wrong += readable(p, 16 * PAGE, PAGE);
    MUST(munlock(p + 16 * PAGE, PAGE));
    MUST(advise(p, bytes, REMOVE));
    wrong += check_empty((uint64_t *)p, 16 * PAGE);
    for (size_t i = 16 * PAGE / 8; i < bytes / 8; i++) wrong += ((uint64_t *)p)[i] != word(7, i);
    char *ends = mmap(NULL, far, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ends == MAP_FAILED) return wrong;
    MUST(mprotect(ends, PAGE, PROT_READ | PROT_WRITE));
    MUST(mprotect(ends + far - PAGE, PAGE, PROT_READ | PROT_WRITE));
    MUST(munmap(ends + PAGE, far - 2 * PAGE));
    *ends = ends[far - 1] = 1;
    wrong += !advise(ends, far, INSTALL) || errno != ENOMEM;
    wrong += readable(ends, PAGE, PAGE) + readable(ends + far - PAGE, PAGE, PAGE);
    MUST(advise(ends, PAGE, REMOVE));
    MUST(advise(ends + far - PAGE, PAGE, REMOVE));
    return wrong + (*ends != 0) + (ends[far - 1] != 0);
}

int main(int argc, char **argv) {
    how = argv[1][0];
    MUST(pipe(ends));
    uint64_t *unused = map(UNUSED * MIB);
    if (madvise(unused, PAGE, INSTALL)) return REFUSED;
    MUST(madvise(unused, PAGE, REMOVE));
    size_t wrong = 0;
    uint64_t *outside = map(OUTSIDE * MIB), *other = map(OTHER * MIB);
    fill(outside, OUTSIDE * MIB, 3);
    // So that not all of it is filled before the first page is evicted.
    fill(other, FIRST * MIB, 1);
    wait_until_paged((OUTSIDE + FIRST) * MIB);
    fill(other, OTHER * MIB, 1);
    // Guards every fourth page of memory that was never used, and touches the pages between in sequence.
    for (size_t i = 3 * PAGE; i < UNUSED * MIB; i += 4 * PAGE) MUST(advise((char *)unused + i, PAGE, INSTALL));
    for (size_t i = 0; i < UNUSED * MIB; i += PAGE)
        if (i / PAGE % 4 != 3) *(volatile char *)((char *)unused + i) = 0;
    wrong += readable((char *)unused + 3 * PAGE, UNUSED * MIB - 3 * PAGE, 4 * PAGE);
    MUST(advise(unused, UNUSED * MIB, REMOVE));
    wrong += check_empty(unused, UNUSED * MIB);
    if (how != 'b') {
        wrong += refused();
        // The same without a descriptor for /proc.
        struct rlimit files, none = {0, 0};
        MUST(getrlimit(RLIMIT_NOFILE, &files));
        none.rlim_max = files.rlim_max;
        MUST(setrlimit(RLIMIT_NOFILE, &none));
        wrong += refused();
        MUST(setrlimit(RLIMIT_NOFILE, &files));
        wrong += guard(outside, OUTSIDE * MIB / 2);
        uint64_t *present = map(PRESENT * MIB);
        fill(present, PRESENT * MIB, 5);
        wrong += guard(present, PRESENT * MIB);
        fill(present, PRESENT * MIB, 6);
        wrong += guard(present, PRESENT * MIB);
    }
    // Many guards take no memory.
    char *guarded = (char *)map(GUARDED * MIB);
    MUST(advise(guarded, GUARDED * MIB, INSTALL));
    for (int round = 0; round < 3; round++) wrong += check(other, OTHER * MIB, 1);
    wrong += readable(guarded, GUARDED * MIB, 64 * PAGE);
    // What had no guards is as it was.
    for (size_t i = OUTSIDE * MIB / 16; i < OUTSIDE * MIB / 8; i++) wrong += outside[i] != word(3, i);
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
