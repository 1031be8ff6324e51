// What system calls say of addresses behind a mapping while many mappings are made: nothing is mapped there. And one mremap
// over several mappings, which Linux 6.17 and later carry out.
#include "pages.h"
#include <sys/syscall.h>

enum { SMALL = 256, OTHER = 60, AROUND = 64 };

int main(void) {
    uint64_t *other = map(OTHER * MIB);
    fill(other, OTHER * MIB, 1);
    size_t wrong = check(other, OTHER * MIB, 1);
    for (int i = 0; i < SMALL; i++) {
        // A hole at a known place behind a mapping: its second half, unmapped.
        char *p = (char *)map(2 * AROUND * PAGE), *hole = p + AROUND * PAGE;
        memset(p, 1, AROUND * PAGE);
        MUST(munmap(hole, AROUND * PAGE));
        unsigned char there[2 * AROUND];
        errno = 0;
        wrong += mprotect(p, 2 * AROUND * PAGE, PROT_READ | PROT_WRITE) != -1 || errno != ENOMEM;
        wrong += mprotect(hole, PAGE, PROT_READ | PROT_WRITE) != -1;
        wrong += madvise(hole, PAGE, MADV_DONTNEED) != -1;
        wrong += munmap(hole + AROUND * PAGE + 1, PAGE) != -1 || errno != EINVAL;
        wrong += munmap(hole + AROUND * PAGE, 0) != -1 || errno != EINVAL;
        wrong += syscall(SYS_munmap, hole, PAGE) != 0;
        // Longer than all addresses.
        wrong += munmap(p, 1UL << 62) != -1 || errno != EINVAL;
        wrong += syscall(SYS_munmap, p, 1UL << 62) != -1 || errno != EINVAL;
        wrong += mincore(p, 2 * AROUND * PAGE, there) != -1;
        wrong += mremap(p, 2 * AROUND * PAGE, 3 * AROUND * PAGE, MREMAP_MAYMOVE) != MAP_FAILED || errno != EFAULT;
        for (size_t j = 0; j < AROUND * PAGE; j += PAGE) wrong += p[j] != 1;
        MUST(munmap(p, AROUND * PAGE));
    }
    // Three mappings side by side, of different access, moved at once.
    char *from = (char *)map(3 * AROUND * PAGE), *to = (char *)map(3 * AROUND * PAGE);
    memset(from, 3, 3 * AROUND * PAGE);
    MUST(mprotect(from + AROUND * PAGE, AROUND * PAGE, PROT_READ));
    fill(other, OTHER * MIB, 2);
    char *moved = mremap(from, 3 * AROUND * PAGE, 3 * AROUND * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    printf("moved: %d\n", moved == to);
    for (size_t j = 0; moved == to && j < 3 * AROUND * PAGE; j += PAGE) wrong += to[j] != 3;
    wrong += check(other, OTHER * MIB, 2);
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
