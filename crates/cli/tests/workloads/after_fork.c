// The parent changes its memory just after a fork: gives a range to no more children, or again to children that get it empty,
// moves or unmaps it. The child has what was there at the fork, also where it makes the same change.
#include "pages.h"
#include <sys/syscall.h>
#include <sys/uio.h>

enum { PART = 16, FILLER = 32 };

static uint64_t *part, *place;

static void nothing(void) {}
static void libc_dontfork(void) { MUST(madvise(part, PART * MIB, MADV_DONTFORK)); }
static void libc_wipeonfork(void) { MUST(madvise(part, PART * MIB, MADV_WIPEONFORK)); }
static void bare_dontfork(void) { MUST(bare5(SYS_madvise, (long)part, PART * MIB, MADV_DONTFORK, 0, 0) ? -1 : 0); }
static void bare_wipeonfork(void) { MUST(bare5(SYS_madvise, (long)part, PART * MIB, MADV_WIPEONFORK, 0, 0) ? -1 : 0); }
static void libc_keeponfork(void) { MUST(madvise(part, PART * MIB, MADV_KEEPONFORK)); }
static void bare_keeponfork(void) { MUST(bare5(SYS_madvise, (long)part, PART * MIB, MADV_KEEPONFORK, 0, 0) ? -1 : 0); }

// Linux takes such advice by process_madvise since 6.13.
static void advise_by_process(int advice) {
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    struct iovec range = {part, PART * MIB};
    if (syscall(SYS_process_madvise, self, &range, 1, advice, 0) != (long)(PART * MIB)) MUST(madvise(part, PART * MIB, advice));
    if (self >= 0) close(self);
}

static void process_dontfork(void) { advise_by_process(MADV_DONTFORK); }
static void process_wipeonfork(void) { advise_by_process(MADV_WIPEONFORK); }
// The child has nothing there.
static void map_again(void) {
    const int FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    MUST((intptr_t)mmap(part, PART * MIB, PROT_READ | PROT_WRITE, FLAGS, -1, 0));
}
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
    void (*parent)(void), (*child)(void), (*before)(void);
} CASES[] = {
    {"dontfork", libc_dontfork, nothing},
    {"wipeonfork", libc_wipeonfork, nothing},
    {"bare dontfork", bare_dontfork, nothing},
    {"bare wipeonfork", bare_wipeonfork, nothing},
    {"keeponfork", libc_keeponfork, nothing, libc_wipeonfork},
    {"bare keeponfork", bare_keeponfork, nothing, libc_wipeonfork},
    {"process keeponfork", libc_keeponfork, nothing, process_wipeonfork},
    {"process dontfork", nothing, map_again, process_dontfork},
    {"both grow", grow, grow},
    {"both move", move, move},
    {"the parent moves", move, nothing},
    {"the child moves", nothing, move},
    {"the parent unmaps", unmap, nothing},
};

// Memory that has grown in place. Pieces of few pages are registered with their mapping, and known to the pager only by
// their pages.
enum { PIECES = 40, FIRST = 4 * PAGE, GROWN = 8 * PAGE };
static uint64_t *piece[PIECES];
static uint64_t *grown(int i) { return piece[i] + FIRST / 8; }

static void unmap_grown(void) {
    for (int i = 0; i < PIECES; i++) MUST(munmap(grown(i), GROWN));
}

static void advise_grown(int advice) {
    for (int i = 0; i < PIECES; i++) MUST(madvise(grown(i), GROWN, advice));
}

static void after_growth(const char *name, int advice, void (*parent)(void)) {
    static uint64_t *filler;
    if (!filler) filler = map(FILLER * MIB);
    for (int i = 0; i < PIECES; i++) {
        // What is behind it ends before it grows.
        piece[i] = map(FIRST + GROWN + PAGE);
        MUST(mprotect((char *)piece[i] + FIRST + GROWN, PAGE, PROT_NONE));
        MUST(munmap(grown(i), GROWN));
        fill(piece[i], FIRST, i);
    }
    fill(filler, FILLER * MIB, 1);
    for (int i = 0; i < PIECES; i++) {
        MUST((intptr_t)mremap(piece[i], FIRST, FIRST + GROWN, 0));
        fill(grown(i), GROWN, PIECES + i);
    }
    fill(filler, FILLER * MIB, 2), fill(filler, FILLER * MIB, 3);
    if (advice) advise_grown(advice);
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid);
    size_t wrong = 0;
    if (!pid) {
        for (int i = 0; i < PIECES; i++) {
            wrong += check(piece[i], FIRST, i) != 0;
            for (size_t word = 0; advice && word < GROWN / 8; word++) wrong += grown(i)[word] != 0;
            if (!advice) wrong += check(grown(i), GROWN, PIECES + i) != 0;
        }
        _exit(wrong != 0);
    }
    parent();
    int status = status_of(pid);
    if (parent == nothing)
        for (int i = 0; i < PIECES; i++) wrong += check(grown(i), GROWN, PIECES + i) != 0;
    printf("%s: child %d, parent %zu\n", name, status, wrong);
    for (int i = 0; i < PIECES; i++) MUST(munmap(piece[i], FIRST + GROWN + PAGE));
}

int main(void) {
    uint64_t *filler = map(FILLER * MIB);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        // What is behind it keeps it from growing in place.
        part = map(PART * MIB + PAGE), place = map(2 * PART * MIB);
        MUST(mprotect((char *)part + PART * MIB, PAGE, PROT_NONE));
        MUST(munmap(place, 2 * PART * MIB));
        // A part of it is evicted.
        fill(part, PART * MIB, i), fill(filler, FILLER * MIB, i), fill(filler, FILLER * MIB, i + 1);
        if (CASES[i].before) CASES[i].before();
        fflush(stdout);
        pid_t pid = fork();
        MUST(pid);
        if (!pid) {
            CASES[i].child();
            usleep(100 * 1000);
            _exit((CASES[i].before ? check_empty(part, PART * MIB) : check(part, PART * MIB, i)) != 0);
        }
        CASES[i].parent();
        int status = status_of(pid);
        size_t wrong = part ? check(part, PART * MIB, i) : 0;
        printf("%s: child %d, parent %zu\n", CASES[i].name, status, wrong);
        if (part) MUST(munmap(part, PART * MIB));
    }
    MUST(munmap(filler, FILLER * MIB));
    after_growth("grown, wiped", MADV_WIPEONFORK, nothing);
    after_growth("grown, the parent unmaps", 0, unmap_grown);
    return 0;
}
