// Memory that a fork child does not get (MADV_DONTFORK), gets empty (MADV_WIPEONFORK), or gets; a part of each is evicted at
// the fork. The child maps something else where it has nothing; with an argument, after a while, since memfit may map something,
// too.
#include "pages.h"

enum { PART = 8, KEPT = 32, ROUNDS = 2 };

static uint64_t *missing, *wiped, *kept, *again;

static size_t parents(void) {
    return check(missing, PART * MIB, 1) + check(wiped, PART * MIB, 2) + check(kept, KEPT * MIB, 3) +
           check(again, PART * MIB, 4);
}

static int child(int waits) {
    size_t wrong = check_empty(wiped, PART * MIB / 2);
    if (waits) usleep(300000);
    // Not mapped in the child, so this mapping takes nothing's place.
    void *p = mmap(missing, PART * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (p != missing) return 2;
    wrong += check_empty(missing, PART * MIB / 2);
    fill(missing, PART * MIB, 11), fill(wiped, PART * MIB, 12);
    wrong += check(kept, KEPT * MIB, 3) + check(again, PART * MIB, 4);
    fill(kept, KEPT * MIB / 4, 13);
    wrong += check(missing, PART * MIB, 11) + check(wiped, PART * MIB, 12) + check(kept, KEPT * MIB / 4, 13);
    // A grandchild inherits what the child has mapped; what is wiped is wiped again.
    pid_t pid = fork();
    if (!pid) _exit((check(missing, PART * MIB, 11) + check_empty(wiped, PART * MIB)) != 0);
    return wrong != 0 || status_of(pid);
}

int main(int argc, char **argv) {
    (void)argv;
    missing = map(PART * MIB), wiped = map(PART * MIB), kept = map(KEPT * MIB), again = map(PART * MIB);
    fill(missing, PART * MIB, 1), fill(wiped, PART * MIB, 2), fill(kept, KEPT * MIB, 3), fill(again, PART * MIB, 4);
    MUST(madvise(missing, PART * MIB, MADV_DONTFORK));
    MUST(madvise(wiped, PART * MIB, MADV_WIPEONFORK));
    MUST(madvise(again, PART * MIB / 2, MADV_DONTFORK));
    MUST(madvise(again, PART * MIB / 2, MADV_DOFORK));
    MUST(madvise(again + PART * MIB / 16, PART * MIB / 2, MADV_WIPEONFORK));
    MUST(madvise(again + PART * MIB / 16, PART * MIB / 2, MADV_KEEPONFORK));
    size_t wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pid = fork();
        MUST(pid);
        if (!pid) _exit(child(argc > 1));
        wrong += parents();
        printf("child: %d\n", status_of(pid));
        fflush(stdout);
        wrong += parents();
    }
    // The last child gets all of it.
    MUST(madvise(missing, PART * MIB, MADV_DOFORK));
    MUST(madvise(wiped, PART * MIB, MADV_KEEPONFORK));
    pid_t pid = fork();
    MUST(pid);
    if (!pid) _exit(parents() != 0);
    printf("last child: %d, wrong: %zu\n", status_of(pid), wrong);
    return wrong != 0;
}
