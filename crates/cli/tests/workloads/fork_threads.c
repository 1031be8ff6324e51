/* A process with threads, open streams and threads that have ended forks again and again. Parent, children and grandchildren
 * verify every page and change their own; meanwhile the parent's other threads read, write, allocate and free. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 16384, WORDS = 512, STREAMS = 300, ROUNDS = 3, THREADS = 3, ENDED = 12 };

static uint64_t (*memory)[WORDS];
static volatile int done;

static uint64_t word(uint64_t page, uint64_t i, uint64_t seed) {
    return i % 16 ? page * 1000 + i : (page ^ seed) * 0x9e3779b97f4a7c15u;
}

static void fill(uint64_t page, uint64_t seed) {
    for (int i = 0; i < WORDS; i++) memory[page][i] = word(page, i, seed);
}

static void check(uint64_t page, uint64_t seed, const char *who) {
    for (int i = 0; i < WORDS; i++) {
        if (memory[page][i] != word(page, i, seed)) {
            fprintf(stderr, "%s: page %lu word %d is %lx\n", who, page, i, memory[page][i]);
            _exit(9);
        }
    }
}

/* Reads pages that nobody changes, and keeps the allocator and its arenas busy. */
static void *busy(void *arg) {
    unsigned state = (unsigned)(uintptr_t)arg;
    void *blocks[64] = {0};
    while (!done) {
        check(PAGES / 2 + rand_r(&state) % (PAGES / 2), 0, "thread");
        int i = rand_r(&state) % 64;
        free(blocks[i]);
        size_t bytes = 1 + rand_r(&state) % (i < 2 ? 400000 : 4000);
        blocks[i] = malloc(bytes);
        memset(blocks[i], i, bytes);
    }
    for (int i = 0; i < 64; i++) free(blocks[i]);
    return 0;
}

static void *ends(void *arg) {
    return malloc((uintptr_t)arg * 100);
}

static void child(int round) {
    for (int page = 0; page < PAGES; page++) check(page, page < PAGES / 2 ? round : 0, "child");
    for (int page = 0; page < PAGES; page += 3) fill(page, 1000 + round);
    pthread_t thread;
    if (pthread_create(&thread, 0, ends, (void *)7) || pthread_join(thread, 0)) _exit(8);
    pid_t grandchild = fork();
    if (grandchild == 0) {
        for (int page = 0; page < PAGES; page += 3) check(page, 1000 + round, "grandchild");
        _exit(0);
    }
    int status = 1;
    if (waitpid(grandchild, &status, 0) != grandchild || status) _exit(7);
    for (int page = 1; page < PAGES; page += 3) check(page, page < PAGES / 2 ? round : 0, "child again");
    _exit(0);
}

int main(void) {
    memory = mmap(0, sizeof(uint64_t) * WORDS * PAGES, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < STREAMS; i++) {
        FILE *stream = fopen("/dev/null", "w");
        if (stream) setvbuf(stream, malloc(5000), _IOFBF, 5000), fputs("open", stream);
    }
    for (int page = PAGES / 2; page < PAGES; page++) fill(page, 0);
    pthread_t old[ENDED], threads[THREADS];
    for (int i = 0; i < ENDED; i++) pthread_create(&old[i], 0, ends, (void *)(uintptr_t)i);
    for (int i = 0; i < ENDED; i++) pthread_join(old[i], 0);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, busy, (void *)(uintptr_t)(i + 1));
    int wrong = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        for (int page = 0; page < PAGES / 2; page++) fill(page, round);
        fflush(0);
        pid_t pid = fork();
        if (pid == 0) child(round);
        int status = 1;
        for (int page = 0; page < PAGES / 2; page += 5) fill(page, round + 500);
        if (waitpid(pid, &status, 0) != pid || status) wrong++, fprintf(stderr, "round %d: status %x\n", round, status);
    }
    done = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    for (int page = 0; page < PAGES; page++) check(page, page >= PAGES / 2 ? 0 : page % 5 ? ROUNDS : ROUNDS + 500, "parent");
    printf("%d rounds, %d wrong\n", ROUNDS, wrong);
    return wrong != 0;
}
