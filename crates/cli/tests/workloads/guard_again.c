// A thread that a signal interrupts in a page fault faults again. The page then becomes a guard page at once: no fault
// that is served late may fill it. The call is libc's, or a bare instruction ("libc", "bare").
#include "pages.h"
#include <signal.h>
#include <sys/syscall.h>

enum { INSTALL = 102, FRESH = 16, OTHER = 44, ROUNDS = 8 };

static int ends[2];
static volatile int over;
static pthread_t toucher;

static void nothing(int signal) { (void)signal; }

static void *interrupt(void *unused) {
    while (!over) pthread_kill(toucher, SIGUSR1);
    return unused;
}

static int install(char *at, char how) {
    if (how == 'l') return madvise(at, PAGE, INSTALL);
    return bare(SYS_madvise, (long)at, PAGE, INSTALL) ? -1 : 0;
}

static size_t readable(char *at) {
    char byte;
    for (;;) {
        ssize_t written = write(ends[1], at, 1);
        if (written == 1) {
            while (read(ends[0], &byte, 1) != 1) {}
            return 1;
        }
        if (errno != EINTR) return 0;
    }
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    MUST(pipe(ends));
    if (madvise(map(PAGE), PAGE, INSTALL)) return REFUSED;
    uint64_t *other = map(OTHER * MIB);
    fill(other, OTHER * MIB, 1);
    wait_until_paged(OTHER * MIB);
    signal(SIGUSR1, nothing);
    toucher = pthread_self();
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, interrupt, NULL) ? -1 : 0);
    size_t wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char *fresh = (char *)map(FRESH * MIB);
        for (size_t i = 0; i < FRESH * MIB; i += PAGE * 2) {
            fresh[i] = 1;
            MUST(install(fresh + i, argv[1][0]));
        }
        for (size_t i = 0; i < FRESH * MIB; i += PAGE * 2) wrong += readable(fresh + i);
        MUST(munmap(fresh, FRESH * MIB));
    }
    over = 1;
    pthread_join(thread, NULL);
    wrong += check(other, OTHER * MIB, 1);
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
