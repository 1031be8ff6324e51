// Guard pages (MADV_GUARD_INSTALL, Linux 6.13) over memory that is evicted, present, and never used. The call is made by
// libc's function, by its syscall(), or, for memory never used, by a bare instruction as in glibc ("libc", "syscall",
// "bare").
#include "pages.h"
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
