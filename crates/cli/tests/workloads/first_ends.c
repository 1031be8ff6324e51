// Its first thread ends, and another one does all the work: first_ends BEFORE AFTER, MiB that are filled before the
// first thread has ended and after that. Fork children check what they inherited, but for what they must not have.
#include "pages.h"

static size_t before, after, wrong;
static uint64_t *old;
static pthread_t first;

// The child has its parent's memory, without what the parent keeps to itself.
static int child(uint64_t *all, size_t bytes, uint64_t *wiped) {
    pid_t pid = fork();
    MUST(pid);
    if (!pid) _exit((check(all, bytes, 7) || check_empty(wiped, MIB)) + 2 * (check(old, before, 5) != 0));
    int status;
    MUST(waitpid(pid, &status, 0));
    return status;
}

static void *work(void *none) {
    MUST(-pthread_join(first, NULL));
    wrong += check(old, before, 5);
    uint64_t *fresh = map(after + PAGE), *wiped = map(MIB);
    MUST(madvise(wiped, MIB, MADV_WIPEONFORK));
    for (int round = 0; round < 4; round++) {
        fill(fresh, after, round + 4);
        fill(wiped, MIB, 9);
        usleep(20000);
        wrong += check(fresh, after, round + 4) + check(wiped, MIB, 9) + check(old, before, 5);
    }
    printf("wrong: %zu, the child: %#x\n", wrong, child(fresh, after, wiped));
    exit(0);
}

int main(int argc, char **argv) {
    before = atol(argv[1]) * MIB, after = atol(argv[2]) * MIB, first = pthread_self();
    pthread_t worker;
    old = map(before + PAGE);
    fill(old, before, 5);
    MUST(-pthread_create(&worker, NULL, work, NULL));
    pthread_exit(NULL);
}
