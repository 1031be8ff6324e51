// Threads on stacks that the program makes itself, in its oldest memory. They sleep a moment, and end by a bare system
// call while their memory is cold: what the kernel needs of their descriptors must never have been evicted. Another
// thread fills the rest of the memory again and again meanwhile.
//
// Run it with GLIBC_TUNABLES=glibc.pthread.rseq=0: see raw_exit.c.
#include "pages.h"
#include <linux/futex.h>
#include <sys/syscall.h>

enum { STACK = 16 << 10, STACKS = 6000, THREADS = 8, ROUNDS = 150, DISTANCE = 4, PATIENCE = 5 };

static char *arena;
static size_t filled;
static int done, go, asleep, pagemap;
// Who uses a stack's memory.
enum { NOBODY, FILLER, THREAD };
static int used[STACKS];

static int is_present(const void *at) {
    uint64_t entry = 0;
    MUST(pread(pagemap, &entry, 8, (uintptr_t)at / PAGE * 8));
    return entry >> 63;
}

static char *top(size_t stack) { return arena + (stack % STACKS + 1) * STACK - PAGE; }

static int take(size_t stack, int user) {
    int free = NOBODY;
    return __atomic_compare_exchange_n(&used[stack], &free, user, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static void give_back(size_t stack) { __atomic_store_n(&used[stack], NOBODY, __ATOMIC_SEQ_CST); }

static void *filler(void *arg) {
    for (size_t round = 0; !__atomic_load_n(&done, __ATOMIC_RELAXED); round++)
        for (size_t i = 0; i < STACKS; i++) {
            if (take(i, FILLER)) {
                fill((uint64_t *)(arena + i * STACK), STACK, round);
                give_back(i);
            }
            __atomic_store_n(&filled, round * STACKS + i, __ATOMIC_RELEASE);
            // The first time slowly: it is not paged yet.
            if (!round && i % 64 == 0) usleep(2000);
        }
    return arg;
}

// Waits until `go` is not 0, then ends the thread; from here on it uses registers only.
static void *sleeper(void *arg) {
    __atomic_add_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
    __asm__ volatile("1: mov %[futex], %%eax; xor %%esi, %%esi; xor %%edx, %%edx; xor %%r10d, %%r10d; syscall\n\t"
                     "cmpl $0, (%%rdi); je 1b; mov %[exit], %%eax; xor %%edi, %%edi; syscall; hlt"
                     :
                     : "D"(&go), [futex] "i"(SYS_futex), [exit] "i"(SYS_exit)
                     : "rax", "rcx", "rdx", "rsi", "r10", "r11", "memory");
    return arg;
}

int main(void) {
    arena = (char *)map((size_t)STACKS * STACK);
    MUST(pagemap = open("/proc/self/pagemap", O_RDONLY));
    pthread_t threads[THREADS], filling;
    pthread_create(&filling, NULL, filler, NULL);
    while (__atomic_load_n(&filled, __ATOMIC_ACQUIRE) < 3 * STACKS) usleep(1000);
    int taken = 0, joined = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t oldest = __atomic_load_n(&filled, __ATOMIC_ACQUIRE) + 64, stacks[THREADS];
        while (!is_present(top(oldest))) oldest++;
        __atomic_store_n(&go, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&asleep, 0, __ATOMIC_SEQ_CST);
        for (int i = 0; i < THREADS; i++) {
            stacks[i] = (oldest + (i + 1) * DISTANCE) % STACKS;
            while (!take(stacks[i], THREAD)) usleep(10);
            pthread_attr_t attributes;
            pthread_attr_init(&attributes);
            pthread_attr_setstack(&attributes, arena + stacks[i] * STACK, STACK);
            if (pthread_create(&threads[i], &attributes, sleeper, NULL)) return 2;
        }
        while (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST) < THREADS) usleep(100);
        usleep(3000);
        for (int i = 0; i < THREADS; i++) taken += !is_present((void *)threads[i]);
        __atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
        MUST(syscall(SYS_futex, &go, FUTEX_WAKE, THREADS, NULL, NULL, 0));
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += PATIENCE;
        for (int i = 0; i < THREADS; i++) {
            joined += !pthread_timedjoin_np(threads[i], NULL, &until);
            give_back(stacks[i]);
        }
        if (joined != (round + 1) * THREADS) break;
    }
    __atomic_store_n(&done, 1, __ATOMIC_SEQ_CST);
    pthread_join(filling, NULL);
    printf("wrong: %d\ndescriptors that were taken: %d\nthreads that ended: %d of %d\n", ROUNDS * THREADS - joined, taken,
           joined, ROUNDS * THREADS);
    return joined != ROUNDS * THREADS;
}
