// Memory of which every word is known. Most of these programs include this.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)

// Exit code if the machine does not permit what is tested: the test is skipped.
enum { REFUSED = 77 };

// Ends the program when a call fails.
#define MUST(call)                                                          \
    do {                                                                    \
        if ((long)(call) == -1) {                                           \
            printf("line %d: %s: %s\n", __LINE__, #call, strerror(errno)); \
            exit(2);                                                        \
        }                                                                   \
    } while (0)

// The word at an index of memory that was filled with a seed: a part of it does not compress.
static inline uint64_t word(uint64_t seed, size_t i) {
    uint64_t x = seed + i / 512;
    if (i % 8) return x;
    x = (x + i) * 0x9e3779b97f4a7c15u;
    return (x ^ x >> 31) | 1;
}

static inline uint64_t *map(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST((intptr_t)p);
    return p;
}

static inline void fill(uint64_t *p, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes / 8; i++) p[i] = word(seed, i);
}

// Counts words that are not as they were filled.
static inline size_t check(const uint64_t *p, size_t bytes, uint64_t seed) {
    size_t wrong = 0;
    for (size_t i = 0; i < bytes / 8; i++) wrong += p[i] != word(seed, i);
    return wrong;
}

// Counts words that are not zero.
static inline size_t check_empty(const uint64_t *p, size_t bytes) {
    size_t wrong = 0;
    for (size_t i = 0; i < bytes / 8; i++) wrong += p[i] != 0;
    return wrong;
}

// The next of a series of random numbers.
static inline uint64_t next(uint64_t *x) {
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return *x;
}

// Starts threads; their arguments are numbers from the first on.
static inline void start_threads(pthread_t *threads, int count, void *(*body)(void *), uintptr_t first) {
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, body, (void *)(first + i));
}

// Waits for them; returns the sum of their results.
static inline size_t join_threads(pthread_t *threads, int count) {
    size_t sum = 0;
    for (int i = 0; i < count; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (size_t)result;
    }
    return sum;
}

// Resident bytes of this process and, if it is not 0, of another one.
static inline size_t resident(pid_t other) {
    size_t size, pages, sum = 0;
    for (int i = 0; i < (other ? 2 : 1); i++) {
        char name[64];
        snprintf(name, sizeof name, "/proc/%d/statm", i ? other : getpid());
        FILE *statm = fopen(name, "r");
        if (!statm || fscanf(statm, "%zu %zu", &size, &pages) != 2) exit(3);
        fclose(statm);
        sum += pages * PAGE;
    }
    return sum;
}

// The value of LD_PRELOAD, or NULL without memfit.
static inline const char *preloaded_memfit(void) {
    const char *preload = getenv("LD_PRELOAD");
    return preload && strstr(preload, "libmemfit.so") ? preload : NULL;
}

// Waits, a minute at most, until memfit has evicted a quarter of what this process and another one, unless it is 0, have
// filled, however busy the machine is. Returns at once without memfit.
static inline void wait_until_both_paged(size_t filled, pid_t other) {
    if (!preloaded_memfit()) return;
    for (int i = 0; i < 12000 && resident(other) >= filled / 4 * 3; i++) usleep(5000);
}

static inline void wait_until_paged(size_t filled) {
    wait_until_both_paged(filled, 0);
}

// A system call of which no library knows: its result, or the negative number of the error.
static inline long bare5(long number, long a, long b, long c, long fourth, long fifth) {
    long result;
    register long d __asm__("r10") = fourth, e __asm__("r8") = fifth, f __asm__("r9") = 0;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(d), "r"(e), "r"(f) : "rcx", "r11", "memory");
    return result;
}

static inline long bare(long number, long a, long b, long c) {
    return bare5(number, a, b, c, 0, 0);
}

// The exit status of a child, or -1 when a signal killed it.
static inline int status_of(pid_t child) {
    int status = 0;
    MUST(waitpid(child, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
