// Checks its memory over and over, and a cold part of it, while a debugger comes and goes. Writes its pid, the address of an
// evicted cold page, if there can be one, and the byte there to "ready", and goes on until there is a file "done".
#include "pages.h"
#include <sys/prctl.h>

enum { COLD = 8, HOT = 56 };

static uint64_t *cold, *hot;
static volatile int done;

static void *second(void *arg) {
    size_t wrong = 0;
    while (!done) wrong += check(hot, HOT * MIB / 8, 2), usleep(1000);
    return (void *)wrong;
}

// The address of a cold page that is not in memory; after some rounds, of any cold page.
static void *outside(void) {
    static unsigned char present[COLD * 256];
    for (int round = 0; round < 20; round++) {
        MUST(mincore(cold, COLD * MIB, present));
        for (size_t i = 0; i < sizeof present; i++)
            if (!(present[i] & 1)) return (char *)cold + i * PAGE;
        if (check(hot, HOT * MIB, 2)) exit(3);
    }
    return cold;
}

int main(void) {
    // For systems where only a parent may attach.
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    cold = map(COLD * MIB), hot = map(HOT * MIB);
    fill(cold, COLD * MIB, 1), fill(hot, HOT * MIB, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, second, NULL);
    uintptr_t at = (uintptr_t)outside();
    FILE *ready = fopen("ready.new", "w");
    fprintf(ready, "%d 0x%lx %u\n", getpid(), at, (unsigned)(word(1, (at - (uintptr_t)cold) / 8) & 255));
    fclose(ready);
    MUST(rename("ready.new", "ready"));
    size_t wrong = 0;
    int null = open("/dev/null", O_WRONLY);
    while (access("done", F_OK)) {
        wrong += check(hot, HOT * MIB, 2);
        // Buffers all over the memory, which a tracer of system calls reads.
        for (size_t i = 0; i < 64; i++) MUST(write(null, hot + i * (HOT * MIB / 64 / 8), 16));
    }
    done = 1;
    void *seen;
    pthread_join(thread, &seen);
    wrong += (size_t)seen + check(hot, HOT * MIB, 2) + check(cold, COLD * MIB, 1);
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
