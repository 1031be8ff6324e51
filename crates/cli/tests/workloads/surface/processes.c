// Calls that make and end processes and threads, and what runs on evicted stacks.
#include "rows.h"
#include <linux/futex.h>
#include <sched.h>
#include <spawn.h>
#include <sys/personality.h>
#include <time.h>
#include <ucontext.h>

enum { STACK = 2 << 20 };

extern char **environ;

static size_t forked(uint64_t *area) {
    size_t wrong = IN_CHILD(check(area, AREA, SEED) || (fill(area, HALF, 5), check(area, HALF, 5)));
    wrong += check(area, AREA, SEED);
    // Both write; the child forks as well.
    fflush(stdout);
    pid_t child = fork();
    MUST(child);
    if (!child) {
        fill(area, HALF, 6);
        pid_t grandchild = fork();
        if (grandchild < 0) _exit(2);
        if (!grandchild) _exit((check(area, HALF, 6) + check_part(area, HALF, HALF, SEED)) != 0);
        _exit((status_of(grandchild) | check(area, HALF, 6)) != 0);
    }
    fill(area, HALF, 7);
    evict(area, AREA);
    return wrong + status_of(child) + check(area, HALF, 7) + check_part(area, HALF, HALF, SEED);
}

// A child that shares the memory until it calls exec, and writes to it.
static size_t vforked(uint64_t *area) {
    volatile uint64_t *volatile at = byte_at(area, QUARTER);
    pid_t child = vfork();
    MUST(child);
    if (!child) {
        at[1] = 4711;
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    size_t wrong = status_of(child) + (at[1] != 4711);
    at[1] = word(SEED, QUARTER / 8 + 1);
    return wrong + check(area, AREA, SEED);
}

static size_t spawned(uint64_t *area) {
    char **words = byte_at(area, HALF), *text = byte_at(area, QUARTER);
    words[0] = strcpy(text, "true"), words[1] = NULL;
    evict_all(words, PAGE);
    evict_all(text, PAGE);
    pid_t child;
    if (posix_spawn(&child, "/bin/true", NULL, NULL, words, environ)) return 1;
    return status_of(child) + check_part(area, 0, QUARTER, SEED);
}

static int write_to_it(void *at) {
    fill(at, QUARTER, 8);
    return 0;
}

// clone with a stack that was evicted: a child that shares the memory.
static size_t cloned(uint64_t *area) {
    char *stack = byte_at(area, HALF);
    pid_t child = clone(write_to_it, stack + HALF, CLONE_VM | CLONE_VFORK | SIGCHLD, area);
    MUST(child);
    return status_of(child) + check(area, QUARTER, 8) + check_part(area, QUARTER, QUARTER, SEED);
}

// Each frame knows what it has; the frames above are evicted when the deepest one returns.
static size_t deeper(size_t left, uint64_t *area) {
    volatile uint64_t frame[512];
    for (int i = 0; i < 512; i++) frame[i] = word(left, i);
    size_t wrong = 0;
    if (left) wrong = deeper(left - 1, area);
    else evict((char *)frame + 16 * PAGE, 64 * PAGE);
    for (int i = 0; i < 512; i++) wrong += frame[i] != word(left, i);
    return wrong;
}

static size_t deep_stack(uint64_t *area) {
    return deeper(300, area) + check(area, AREA, SEED);
}

static int ends[2];

static void *sleeps_on_its_stack(void *arg) {
    volatile uint64_t frames[16 * 512];
    for (int i = 0; i < 16 * 512; i++) frames[i] = word((uintptr_t)arg, i);
    *(volatile uint64_t *volatile *)arg = frames;
    char byte;
    while (read(ends[0], &byte, 1) < 0) {}
    size_t wrong = 0;
    for (int i = 0; i < 16 * 512; i++) wrong += frames[i] != word((uintptr_t)arg, i);
    return (void *)wrong;
}

static volatile int signals;
static void count_signal(int signal) {
    (void)signal;
    signals++;
}

// A thread sleeps while its stack is evicted. Then a signal comes to that stack.
static size_t stack_of_a_thread(uint64_t *area) {
    static volatile uint64_t *volatile frames;
    struct sigaction action = {.sa_handler = count_signal};
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(pipe(ends));
    pthread_t thread;
    pthread_create(&thread, NULL, sleeps_on_its_stack, (void *)&frames);
    while (!frames) usleep(1000);
    usleep(20000);
    char *whole = (char *)(((uintptr_t)frames + PAGE) & -PAGE);
    evict(whole, 14 * PAGE);
    pthread_kill(thread, SIGUSR1);
    while (!signals) usleep(1000);
    evict(whole, 14 * PAGE);
    if (write(ends[1], "x", 1) != 1) return 1;
    void *wrong;
    pthread_join(thread, &wrong);
    return (size_t)wrong + check(area, AREA, SEED);
}

static size_t signal_stack(uint64_t *area) {
    stack_t stack = {.ss_sp = byte_at(area, QUARTER), .ss_size = QUARTER};
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_ONSTACK};
    MUST(sigaltstack(&stack, NULL));
    MUST(sigaction(SIGUSR1, &action, NULL));
    for (int i = 0; i < 3; i++) {
        // The frame of the handler is at the upper end.
        evict_all(byte_at(area, HALF - 2 * PAGE), 2 * PAGE);
        raise(SIGUSR1);
    }
    return (signals != 3) + check_part(area, 0, QUARTER, SEED) + check_part(area, HALF, HALF, SEED);
}

static ucontext_t outer, inner;
static size_t inner_wrong;
static void on_own_stack(void) {
    volatile uint64_t frames[8 * 512];
    for (int i = 0; i < 8 * 512; i++) frames[i] = word(9, i);
    swapcontext(&inner, &outer);
    for (int i = 0; i < 8 * 512; i++) inner_wrong += frames[i] != word(9, i);
}

static size_t coroutines(uint64_t *area) {
    getcontext(&inner);
    inner.uc_stack = (stack_t){.ss_sp = byte_at(area, HALF), .ss_size = HALF};
    inner.uc_link = &outer;
    makecontext(&inner, on_own_stack, 0);
    swapcontext(&outer, &inner);
    // The pages at the end of a stack stay: there is the control block of a thread.
    evict_all(byte_at(area, AREA - 8 * PAGE), 6 * PAGE);
    swapcontext(&outer, &inner);
    return inner_wrong + check(area, HALF, SEED);
}

static __thread uint64_t own[1 << 17];
static void *keeps_own(void *area) {
    fill(own, sizeof own, 5);
    char *whole = (char *)(((uintptr_t)own + PAGE) & -PAGE);
    evict(whole, sizeof own / PAGE / 2 * PAGE);
    return (void *)(check(own, sizeof own, 5) + check(area, AREA, SEED));
}

static size_t thread_local_memory(uint64_t *area) {
    pthread_t thread;
    void *wrong;
    pthread_create(&thread, NULL, keeps_own, area);
    pthread_join(thread, &wrong);
    return (size_t)wrong;
}

// The kernel clears this word, and wakes its waiters, when the thread ends.
static volatile int ending;
static void *ends_with(void *word_of_it) {
    syscall(SYS_set_tid_address, word_of_it);
    ending = gettid();
    return NULL;
}

static size_t cleared_word(uint64_t *area) {
    volatile int *at = byte_at(area, QUARTER);
    *at = 4711;
    evict_all((void *)at, 4);
    pthread_attr_t detached;
    pthread_t thread;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_create(&thread, &detached, ends_with, (void *)at);
    // In evicted memory the kernel cannot do that (docs/limits.md). Nothing brings the word before the thread's end.
    while (!ending || !syscall(SYS_tgkill, getpid(), ending, 0)) usleep(1000);
    size_t wrong = !*at == !!preloaded_memfit();
    *at = (int)word(SEED, QUARTER / 8);
    return wrong + check(area, AREA, SEED);
}

// A robust mutex, and its list, in evicted memory; its owner ends.
static pthread_mutex_t *robust;
static void *locks_and_ends(void *area) {
    (void)area;
    pthread_mutex_lock(robust);
    evict_all(robust, sizeof *robust);
    return NULL;
}

static size_t robust_mutex(uint64_t *area) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    robust = byte_at(area, QUARTER);
    pthread_mutex_init(robust, &attributes);
    pthread_t thread;
    pthread_create(&thread, NULL, locks_and_ends, area);
    pthread_join(thread, NULL);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    // The kernel tells the next owner, unless the mutex was in evicted memory (docs/limits.md).
    until.tv_sec += preloaded_memfit() ? 3 : 60;
    int result = pthread_mutex_timedlock(robust, &until);
    return (result != (preloaded_memfit() ? ETIMEDOUT : EOWNERDEAD)) + check_part(area, 0, QUARTER, SEED);
}

static void *computes(void *arg) {
    while (!*(volatile int *)arg) {}
    return NULL;
}

static volatile int done;

// The process that is replaced has other threads.
static size_t exec_of_threads(uint64_t *area) {
    fflush(stdout);
    pid_t child = fork();
    MUST(child);
    if (!child) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, computes, (void *)&done);
        if (check(area, AREA, SEED)) _exit(3);
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    return status_of(child) + check(area, AREA, SEED);
}

static size_t killed(uint64_t *area) {
    fflush(stdout);
    pid_t child = fork();
    MUST(child);
    if (!child) {
        for (;;) check(area, AREA, SEED);
    }
    usleep(20000);
    int of = syscall(SYS_pidfd_open, child, 0);
    MUST(of);
    MUST(kill(child, SIGKILL));
    // process_mrelease: takes the memory of a process that is about to end.
    long result = syscall(448, of, 0);
    if (result < 0 && errno != ESRCH && errno != EINVAL && errno != EAGAIN) told("mrelease", result);
    int status;
    MUST(waitpid(child, &status, 0));
    return !WIFSIGNALED(status) + check(area, AREA, SEED);
}

static size_t data_limit(uint64_t *area) {
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_DATA, &limit));
    limit.rlim_cur = 96 * MIB;
    MUST(setrlimit(RLIMIT_DATA, &limit));
    told("mmap", (long)mmap(NULL, 128 * MIB, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    evict(area, AREA);
    return check(area, AREA, SEED);
}

static size_t readable_is_executable(uint64_t *area) {
    if (personality(READ_IMPLIES_EXEC) < 0) return REFUSED;
    uint64_t *p = evicted(AREA, 4);
    size_t wrong = check(p, AREA, 4);
    MUST(mprotect(p, AREA, PROT_READ));
    evict(p, AREA);
    return wrong + check(p, AREA, 4) + check(area, AREA, SEED);
}

static size_t signals_often(uint64_t *area) {
    // A timer of CPU time stops the thread at any place of the check.
    struct sigaction action = {.sa_handler = count_signal};
    MUST(sigaction(SIGPROF, &action, NULL));
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
    struct itimerspec often = {{0, 1000000}, {0, 1000000}};
    MUST(timer_settime(timer, 0, &often, NULL));
    size_t wrong = 0;
    for (int i = 0; i < 3; i++) {
        wrong += check(area, AREA, SEED);
        evict(area, AREA);
    }
    MUST(timer_delete(timer));
    return wrong + check(area, AREA, SEED);
}

const struct row rows[] = {
    {"fork", forked},
    {"vfork", vforked},
    {"posix_spawn", spawned},
    {"clone-vm", cloned},
    {"deep-stack", deep_stack},
    {"thread-stack", stack_of_a_thread},
    {"sigaltstack", signal_stack},
    {"ucontext", coroutines},
    {"thread-local", thread_local_memory},
    {"set_tid_address", cleared_word},
    {"robust-mutex", robust_mutex},
    {"exec-threads", exec_of_threads},
    {"process_mrelease", killed},
    {"rlimit-data", data_limit},
    {"personality", readable_is_executable},
    {"signals", signals_often},
    {NULL, NULL},
};
