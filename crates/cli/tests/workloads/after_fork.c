// The parent changes its memory just after a fork: gives a range to no more children, moves or unmaps it. The child has what
// was there at the fork, also where it makes the same change.
#include "pages.h"
#include <sys/syscall.h>

enum { PART = 16, FILLER = 32 };

static uint64_t *part, *place;

static void nothing(void) {}
static void libc_dontfork(void) { MUST(madvise(part, PART * MIB, MADV_DONTFORK)); }
static void libc_wipeonfork(void) { MUST(madvise(part, PART * MIB, MADV_WIPEONFORK)); }
static void bare_dontfork(void) { MUST(bare5(SYS_madvise, (long)part, PART * MIB, MADV_DONTFORK, 0, 0) ? -1 : 0); }
static void bare_wipeonfork(void) { MUST(bare5(SYS_madvise, (long)part, PART * MIB, MADV_WIPEONFORK, 0, 0) ? -1 : 0); }
static void grow(void) { MUST((intptr_t)(part = mremap(part, PART * MIB, 2 * PART * MIB, MREMAP_MAYMOVE))); }
static void move(void) {
    part = mremap(part, PART * MIB, PART * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    MUST((intptr_t)part);
}
static void unmap(void) {
    MUST(munmap(part, PART * MIB));
    part = NULL;
}

static const struct {
    const char *name;
    void (*parent)(void), (*child)(void);
} CASES[] = {
    {"dontfork", libc_dontfork, nothing},
    {"wipeonfork", libc_wipeonfork, nothing},
    {"bare dontfork", bare_dontfork, nothing},
    {"bare wipeonfork", bare_wipeonfork, nothing},
    {"both grow", grow, grow},
    {"both move", move, move},
    {"the parent moves", move, nothing},
    {"the child moves", nothing, move},
    {"the parent unmaps", unmap, nothing},
};

int main(void) {
    uint64_t *filler = map(FILLER * MIB);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        // What is behind it keeps it from growing in place.
        part = map(PART * MIB + PAGE), place = map(2 * PART * MIB);
        MUST(mprotect((char *)part + PART * MIB, PAGE, PROT_NONE));
        MUST(munmap(place, 2 * PART * MIB));
        // A part of it is evicted.
        fill(part, PART * MIB, i), fill(filler, FILLER * MIB, i), fill(filler, FILLER * MIB, i + 1);
        fflush(stdout);
        pid_t pid = fork();
        MUST(pid);
        if (!pid) {
            CASES[i].child();
            usleep(100 * 1000);
            _exit(check(part, PART * MIB, i) != 0);
        }
        CASES[i].parent();
        int status = status_of(pid);
        size_t wrong = part ? check(part, PART * MIB, i) : 0;
        printf("%s: child %d, parent %zu\n", CASES[i].name, status, wrong);
        if (part) MUST(munmap(part, PART * MIB));
    }
    return 0;
}
