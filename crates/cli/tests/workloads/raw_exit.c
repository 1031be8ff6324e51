// Threads that sleep holding robust mutexes until their memory is cold, and end without touching it again. Then only the
// kernel touches their descriptors: it marks the mutexes and clears the thread ids, and no userfault is served for that.
//
//   raw_exit exit   threads leave by a bare system call
//   raw_exit late   the same, on stacks that ended threads left behind, when everything is paged already
//   raw_exit kill   a process is killed, whose threads hold mutexes that another process waits for
//
// With rseq the kernel writes to a descriptor whenever its thread goes back to the program, which would warm it up:
// run `exit` and `late` with GLIBC_TUNABLES=glibc.pthread.rseq=0.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, PAGE = 4096, STACK = 256 << 10, DEEP = 96 << 10, ROUNDS = 40, AFTER = 3, SECONDS = 12, PATIENCE = 5 };
static const size_t SWEEP = 96 << 20;

// In shared memory, which stays resident: neither the mutexes nor the word that the threads wait for can be cold.
static struct shared {
    int go, asleep, swept;
    int cold;
    uintptr_t descriptor[THREADS];
    pthread_mutex_t held[THREADS];
} *shared;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void fail(const char *what) {
    printf("%s\n", what);
    exit(3);
}

// Waits until *go is not 0, then ends the thread; from here on it uses registers only.
static void sleep_and_exit(int *go) {
    __asm__ volatile("1: mov %[futex], %%eax; xor %%esi, %%esi; xor %%edx, %%edx; xor %%r10d, %%r10d; syscall\n\t"
                     "cmpl $0, (%%rdi); je 1b; mov %[exit], %%eax; xor %%edi, %%edi; syscall; hlt"
                     :
                     : "D"(go), [futex] "i"(SYS_futex), [exit] "i"(SYS_exit)
                     : "rax", "rcx", "rdx", "rsi", "r10", "r11", "memory");
    __builtin_unreachable();
}

// Touches the stack as far down as `cold` looks.
static __attribute__((noinline)) int deepen(void) {
    volatile char deep[DEEP];
    for (int i = 0; i < DEEP; i += PAGE) deep[i] = 1;
    return deep[0];
}

static void *sleeper(void *arg) {
    int number = (int)(intptr_t)arg;
    deepen();
    pthread_mutex_lock(&shared->held[number]);
    shared->descriptor[number] = (uintptr_t)pthread_self();
    __atomic_add_fetch(&shared->asleep, 1, __ATOMIC_SEQ_CST);
    sleep_and_exit(&shared->go);
    return NULL;
}

static void *visitor(void *arg) {
    deepen();
    pthread_barrier_wait(arg);
    return NULL;
}

static void start(pthread_t *threads, void *(*body)(void *), void *common) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    for (intptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], &attributes, body, common ? common : (void *)i)) fail("no thread");
}

static void start_sleepers(pthread_t *threads) {
    start(threads, sleeper, NULL);
    while (__atomic_load_n(&shared->asleep, __ATOMIC_SEQ_CST) < THREADS) usleep(1000);
}

static int present(uintptr_t address) {
    static int pagemap;
    uint64_t entry;
    if (!pagemap) pagemap = open("/proc/self/pagemap", O_RDONLY);
    if (pread(pagemap, &entry, 8, address / PAGE * 8) != 8) fail("no pagemap");
    return entry >> 63;
}

// How many threads are cold: nothing of the touched part of the stack beside the descriptor is present any more.
static int cold(void) {
    int count = 0;
    for (int i = 0; i < THREADS; i++) {
        int there = 0;
        for (int page = 4; page < DEEP / PAGE; page++) there += present(shared->descriptor[i] - page * PAGE);
        count += !there;
    }
    return count;
}

static void sweep(uint64_t *memory, uint64_t round) {
    for (size_t i = 0; i < SWEEP / 8; i += PAGE / 8) {
        if (memory[i] != (round ? i + round - 1 : 0)) fail("the swept memory changed");
        memory[i] = i + round;
    }
}

// Sweeps until every thread is cold, and a little longer. Without memfit that never happens, and the rounds end it.
static uint64_t sweep_until_cold(uint64_t *memory, uint64_t round) {
    uint64_t last = round + ROUNDS;
    double end = now() + SECONDS;
    for (; round < last && now() < end; round++) {
        sweep(memory, round);
        shared->cold = cold();
        if (shared->cold == THREADS && last > round + AFTER) last = round + AFTER;
    }
    return round;
}

static uint64_t *map(void) {
    uint64_t *memory = mmap(NULL, SWEEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("no memory");
    return memory;
}

// Ended threads leave their stacks to the next ones. No mapping changes between the scan of the threads that the new mapping
// causes and the end, so nothing but the threads themselves says that there are new ones.
static uint64_t grow_old(uint64_t *memory) {
    pthread_t threads[THREADS];
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, THREADS);
    start(threads, visitor, &together);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    uint64_t round = 0;
    while (round < 3) sweep(memory, round++);
    char *cause = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(cause, 1, 4 << 20);
    while (round < 6) sweep(memory, round++);
    return round;
}

static int mutexes(const struct timespec *until) {
    int marked = 0;
    for (int i = 0; i < THREADS; i++) {
        int error = pthread_mutex_timedlock(&shared->held[i], until);
        if (error == EOWNERDEAD) marked++, pthread_mutex_consistent(&shared->held[i]);
        else printf("mutex %d: %s\n", i, strerror(error));
        if (!error || error == EOWNERDEAD) pthread_mutex_unlock(&shared->held[i]);
    }
    return marked;
}

int main(int argc, char **argv) {
    const char *mode = argc == 2 ? argv[1] : "";
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    for (int i = 0; i < THREADS; i++) pthread_mutex_init(&shared->held[i], &attributes);

    pthread_t threads[THREADS];
    pid_t child = 0;
    int joined = 0;
    if (!strcmp(mode, "kill")) {
        child = fork();
        if (child == 0) {
            start_sleepers(threads);
            sweep_until_cold(map(), 0);
            __atomic_store_n(&shared->swept, 1, __ATOMIC_SEQ_CST);
            for (;;) pause();
        }
        while (!__atomic_load_n(&shared->swept, __ATOMIC_SEQ_CST) && waitpid(child, NULL, WNOHANG) == 0) usleep(10000);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    } else if (!strcmp(mode, "exit") || !strcmp(mode, "late")) {
        uint64_t *memory = map();
        uint64_t round = mode[0] == 'l' ? grow_old(memory) : 0;
        start_sleepers(threads);
        sweep_until_cold(memory, round);
        __atomic_store_n(&shared->go, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &shared->go, FUTEX_WAKE, THREADS, NULL, NULL, 0);
    } else {
        fprintf(stderr, "usage: raw_exit exit|late|kill\n");
        return 2;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    int marked = mutexes(&until);
    for (int i = 0; i < THREADS && !child; i++) {
        int error = pthread_timedjoin_np(threads[i], NULL, &until);
        if (error) printf("thread %d: %s\n", i, strerror(error));
        joined += !error;
    }
    printf("%d of %d mutexes marked\n", marked, THREADS);
    if (!child) printf("%d of %d threads joined\n", joined, THREADS);
    printf("%d of %d threads cold\n", shared->cold, THREADS);
    fflush(stdout);
    _exit(marked == THREADS && (child || joined == THREADS) ? 0 : 1);
}
