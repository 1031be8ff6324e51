// A program that others may not look at: from the start ("early"), after it is paged ("late"), because it becomes another
// user then ("user"), or then and by a bare system call, which no library function sees ("bare"). After that it uses threads
// and, unless it was "bare", fork children.
#include "pages.h"
#include <sys/prctl.h>

enum { THREADS = 8, ROUNDS = 3, PART = 7 * (1 << 20) };
static uint64_t *memory;

static long bare_prctl(long option, long value) {
    long result;
    __asm__ volatile("xor %%r10d, %%r10d; xor %%r8d, %%r8d; syscall"
                     : "=a"(result)
                     : "a"(157L), "D"(option), "S"(value), "d"(0L)
                     : "rcx", "r8", "r10", "r11", "memory");
    return result;
}

static uint64_t *part(size_t i) {
    return memory + i * (PART / 8);
}

static void *look(void *i) {
    return (void *)check(part((size_t)i), PART, (size_t)i);
}

// Threads that come and go, whose descriptors get cold while the memory is checked.
static size_t look_at_all(void) {
    size_t wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t all[THREADS];
        for (size_t i = 0; i < THREADS; i++)
            if (pthread_create(&all[i], NULL, look, (void *)i)) exit(3);
        for (size_t i = 0; i < THREADS; i++) {
            void *result;
            if (pthread_join(all[i], &result)) exit(3);
            wrong += (size_t)result;
        }
    }
    return wrong;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "early")) MUST(prctl(PR_SET_DUMPABLE, 0));
    memory = map(THREADS * PART);
    for (size_t i = 0; i < THREADS; i++) fill(part(i), PART, i);
    if (strcmp(how, "early")) wait_until_paged(THREADS * PART);
    size_t wrong = look_at_all();
    if (!strcmp(how, "late")) MUST(prctl(PR_SET_DUMPABLE, 0));
    if (!strcmp(how, "user")) MUST(setresuid(65534, 65534, 65534));
    if (!strcmp(how, "bare") && bare_prctl(PR_SET_DUMPABLE, 0)) return 4;
    printf("dumpable: %d\n", prctl(PR_GET_DUMPABLE));
    fflush(stdout);
    wrong += look_at_all();
    if (strcmp(how, "bare")) {
        pid_t child = fork();
        MUST(child);
        if (!child) {
            fill(part(0), PART, 9);
            wrong = check(part(0), PART, 9);
            for (size_t i = 1; i < THREADS; i++) wrong += check(part(i), PART, i);
            _exit(wrong != 0);
        }
        printf("child: %d\n", status_of(child));
    }
    wrong += look_at_all();
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
