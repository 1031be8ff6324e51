// Memory that is filled and then made read-only, several times the budget, and what programs do to it meanwhile.
#include "pages.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>

enum { MEMORY = 120, BLOCK_PAGES = 64, THREADS = 4 };

static uint64_t *memory;
static volatile int ending;
static int zero;

// Whether a system call is refused to write there.
static int refuses(void *p) { return read(zero, p, 1) == -1 && errno == EFAULT; }

static uint64_t *page_of(uint64_t *base, size_t page) { return base + page * 512; }

// Counts the wrong words of a page in memory that was filled with a seed.
static size_t check_page(const uint64_t *base, size_t page, uint64_t seed) {
    size_t wrong = 0;
    for (size_t i = page * 512; i < (page + 1) * 512; i++) wrong += base[i] != word(seed, i);
    return wrong;
}

static size_t check_randomly(const uint64_t *base, size_t bytes, uint64_t seed, uint64_t x, int times) {
    size_t wrong = 0, pages = bytes / PAGE;
    for (size_t i = 0; i < pages * times; i++) wrong += check_page(base, next(&x) % pages, seed);
    return wrong;
}

// With PAGED_FIRST in the environment, the memory is paged while it is still writable.
static uint64_t *filled(size_t bytes, uint64_t seed, int access) {
    uint64_t *p = map(bytes);
    fill(p, bytes, seed);
    if (getenv("PAGED_FIRST")) wait_until_paged(bytes);
    MUST(mprotect(p, bytes, access));
    return p;
}

// Fills memory, and waits in between until memfit pages it: the peak does not depend on when memfit gets a CPU.
static void fill_while_paged(uint64_t *p, size_t bytes, uint64_t seed) {
    size_t first = 40 * MIB;
    fill(p, first, seed);
    wait_until_paged(first);
    for (size_t i = first / 8; i < bytes / 8; i++) p[i] = word(seed, i);
}

// Memory that is read in turn and at random, made writable, written, and made read-only again.
static size_t keep(int access) {
    size_t bytes = MEMORY * MIB, wrong = 0;
    memory = map(bytes);
    fill_while_paged(memory, bytes, 1);
    MUST(mprotect(memory, bytes, access));
    wrong += check(memory, bytes, 1) + check_randomly(memory, bytes, 1, 5, 1);
    // A part of it, and all.
    MUST(mprotect((char *)memory + 10 * MIB, 20 * MIB, PROT_READ | PROT_WRITE));
    for (size_t page = 10 * 256; page < 30 * 256; page++) page_of(memory, page)[0] += 1;
    MUST(mprotect((char *)memory + 10 * MIB, 20 * MIB, access));
    for (size_t page = 0; page < bytes / PAGE; page++) {
        int changed = page >= 10 * 256 && page < 30 * 256;
        wrong += page_of(memory, page)[0] != word(1, page * 512) + changed;
    }
    for (uint64_t round = 2; round < 4; round++) {
        MUST(mprotect(memory, bytes, PROT_READ | PROT_WRITE));
        fill(memory, bytes, round);
        MUST(mprotect(memory, bytes, access));
        wrong += check_randomly(memory, bytes, round, round, 1) + check(memory, bytes, round);
    }
    wrong += !refuses(memory) + !refuses(memory + bytes / 16);
    return wrong;
}

// Functions at the beginning of each page, called in any order.
static size_t run_code(void) {
    size_t bytes = MEMORY * MIB, pages = bytes / PAGE, wrong = 0;
    memory = map(bytes);
    fill_while_paged(memory, bytes, 1);
    for (uint32_t page = 0; page < pages; page++) {
        unsigned char code[] = {0xb8, page, page >> 8, page >> 16, page >> 24, 0xc3};
        memcpy(page_of(memory, page), code, sizeof code);
    }
    MUST(mprotect(memory, bytes, PROT_READ | PROT_EXEC));
    uint64_t x = 7;
    for (size_t i = 0; i < pages * 3; i++) {
        size_t page = next(&x) % pages;
        wrong += ((size_t(*)(void))page_of(memory, page))() != page;
    }
    return wrong + !refuses(memory);
}

// A write there raises the signal, and writes nothing.
static __thread sigjmp_buf back;
static __thread volatile siginfo_t seen;

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    *(siginfo_t *)&seen = *info;
    siglongjmp(back, 1);
}

static volatile size_t attempts, written, other;

static void *writer(void *argument) {
    uint64_t x = (uintptr_t)argument;
    size_t pages = MEMORY * MIB / PAGE, done = 0;
    while (!ending) {
        // Neighbours: some of them are just being evicted.
        size_t first = next(&x) % (pages - 64);
        for (size_t page = first; page < first + 64; page++) {
            volatile uint64_t *at = page_of(memory, page) + next(&x) % 512;
            if (!sigsetjmp(back, 0)) {
                *at = 1;
                __sync_fetch_and_add(&written, 1);
            } else if (seen.si_signo != SIGSEGV || seen.si_code != SEGV_ACCERR || seen.si_addr != (void *)at) {
                __sync_fetch_and_add(&other, 1);
            }
            done++;
        }
        if (!refuses(page_of(memory, first))) __sync_fetch_and_add(&written, 1);
    }
    __sync_fetch_and_add(&attempts, done);
    return NULL;
}

static size_t signals(void) {
    size_t bytes = MEMORY * MIB, wrong = 0;
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_NODEFER};
    MUST(sigaction(SIGSEGV, &action, NULL));
    MUST(sigaction(SIGBUS, &action, NULL));
    memory = filled(bytes, 1, PROT_READ);
    pthread_t threads[2];
    start_threads(threads, 2, writer, 99);
    wrong += check(memory, bytes, 1) + check_randomly(memory, bytes, 1, 3, 1) + check(memory, bytes, 1);
    ending = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    wrong += check(memory, bytes, 1);
    printf("written: %zu, other signals: %zu, enough: %d\n", written, other, attempts > 5000);
    return wrong + written + other;
}

// Calls by libc's functions, or by `syscall`.
static int by_number;
#define CALL(name, number, ...) (by_number ? syscall(number, __VA_ARGS__) : (long)name(__VA_ARGS__))

static size_t change(uint64_t x, size_t blocks, int rounds) {
    size_t bytes = BLOCK_PAGES * PAGE, wrong = 0;
    uint64_t *block[blocks], seed[blocks];
    for (size_t i = 0; i < blocks; i++) block[i] = filled(bytes, seed[i] = next(&x), PROT_READ);
    for (int round = 0; round < rounds; round++) {
        size_t i = next(&x) % blocks;
        uint64_t *at = block[i];
        switch (next(&x) % 7) {
            case 0:
            case 1:
                MUST(CALL(mprotect, SYS_mprotect, at, bytes, PROT_READ | PROT_WRITE));
                fill(at, bytes, ++seed[i]);
                break;
            case 2:
                MUST(CALL(munmap, SYS_munmap, at, bytes));
                at = map(bytes);
                wrong += check_empty(at, bytes);
                fill(at, bytes, ++seed[i]);
                break;
            case 3:
                MUST(CALL(mmap, SYS_mmap, at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
                wrong += check_empty(at, bytes);
                fill(at, bytes, ++seed[i]);
                break;
            case 4: {
                // To a place that no other thread takes meanwhile.
                char *to = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                MUST((intptr_t)to);
                wrong += (char *)CALL(mremap, SYS_mremap, at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to;
                at = (uint64_t *)to;
                break;
            }
            case 5:
                if (next(&x) % 8 == 0) {
                    pid_t child = fork();
                    MUST(child);
                    if (!child) {
                        size_t bad = !refuses(at);
                        for (size_t k = i; k < i + 8; k++)
                            bad += check_page(block[k % blocks], next(&x) % BLOCK_PAGES, seed[k % blocks]) + !refuses(block[k % blocks]);
                        MUST(CALL(mprotect, SYS_mprotect, at, bytes, PROT_READ | PROT_WRITE));
                        fill(at, bytes, 3);
                        _exit(bad + check(at, bytes, 3) != 0);
                    }
                    wrong += status_of(child) != 0;
                }
        }
        block[i] = at;
        MUST(CALL(mprotect, SYS_mprotect, at, bytes, PROT_READ));
        wrong += !refuses(at);
        i = next(&x) % blocks;
        wrong += check(block[i], bytes, seed[i]) + !refuses(block[i]);
    }
    for (size_t i = 0; i < blocks; i++) wrong += check(block[i], bytes, seed[i]);
    return wrong;
}

static void *changer(void *argument) { return (void *)change((uintptr_t)argument, MEMORY * 4 / THREADS / 2, 500); }

static size_t calls(void) {
    pthread_t threads[THREADS];
    start_threads(threads, THREADS, changer, 17);
    return join_threads(threads, THREADS);
}

// A part of the memory changes its access all the time, and always has the access that it got last.
enum { FLIPPED = 32 };
static volatile size_t flips;

static void *flipper(void *argument) {
    uint64_t x = (uintptr_t)argument;
    size_t wrong = 0, piece = 16 * PAGE, half = FLIPPED / 2 * MIB / piece, first = half * ((uintptr_t)argument % 2);
    while (!ending) {
        char *at = (char *)memory + (first + next(&x) % half) * piece;
        uint64_t *count = (uint64_t *)at + 1 + next(&x) % 6;
        MUST(CALL(mprotect, SYS_mprotect, at, piece, PROT_READ | PROT_WRITE));
        ++*count, --*count;
        MUST(CALL(mprotect, SYS_mprotect, at, piece, PROT_READ));
        wrong += !refuses(at + 2 * PAGE);
        __sync_fetch_and_add(&flips, 1);
        if (next(&x) % 256) continue;
        pid_t child = fork();
        MUST(child);
        if (!child) _exit(!refuses(at + 3 * PAGE) + !refuses(memory + FLIPPED * MIB / 8));
        wrong += status_of(child) != 0;
    }
    return (void *)wrong;
}

static size_t flip(void) {
    size_t bytes = MEMORY / 3 * MIB, wrong = 0;
    memory = filled(bytes, 1, PROT_READ);
    pthread_t threads[2];
    start_threads(threads, 2, flipper, 50);
    // The flippers must get their turns, too.
    for (int round = 0; round < 10 || flips < 1000; round++) wrong += check(memory, bytes, 1);
    ending = 1;
    wrong += join_threads(threads, 2);
    return wrong + check(memory, bytes, 1);
}

// Children read what their parent has, and so does the parent.
static size_t children(void) {
    size_t bytes = MEMORY / 2 * MIB, wrong = 0;
    memory = filled(bytes, 1, PROT_READ);
    wrong += check(memory, bytes, 1);
    pid_t child[3];
    for (int i = 0; i < 3; i++) {
        MUST(child[i] = fork());
        if (!child[i]) {
            size_t bad = check_randomly(memory, bytes, 1, i + 3, 1) + !refuses(memory);
            MUST(mprotect(memory, 4 * MIB, PROT_READ | PROT_WRITE));
            fill(memory, 4 * MIB, 2);
            MUST(mprotect(memory, 4 * MIB, PROT_READ));
            bad += check(memory, 4 * MIB, 2) + check_page(memory, 4 * 256, 1);
            _exit(bad != 0);
        }
    }
    wrong += check_randomly(memory, bytes, 1, 9, 1);
    for (int i = 0; i < 3; i++) wrong += status_of(child[i]) != 0;
    for (int i = 0; i < 2; i++) wrong += check(memory, bytes, 1);
    return wrong;
}

// What was never written is zeros.
static size_t zeros(void) {
    size_t bytes = MEMORY / 2 * MIB, wrong = 0;
    uint64_t *empty = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // A part of what was reserved, read before anything was written.
    char *reserved = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST((intptr_t)empty);
    MUST((intptr_t)reserved);
    wrong += check_empty(empty, bytes);
    memory = filled(bytes, 1, PROT_READ);
    MUST(mprotect(reserved + 8 * MIB, 40 * MIB, PROT_READ));
    for (int round = 0; round < 2; round++) {
        wrong += check(memory, bytes, 1) + check_empty(empty, bytes);
        wrong += check_empty((uint64_t *)(reserved + 8 * MIB), 40 * MIB);
    }
    wrong += !refuses(empty) + !refuses(reserved + 9 * MIB);
    MUST(mprotect(empty, bytes, PROT_READ | PROT_WRITE));
    for (size_t page = 0; page < bytes / PAGE; page += 8) page_of(empty, page)[0] = page;
    MUST(mprotect(empty, bytes, PROT_READ));
    for (size_t page = 0; page < bytes / PAGE; page++) {
        wrong += page_of(empty, page)[0] != (page % 8 ? 0 : page);
        wrong += check_empty(page_of(empty, page) + 1, PAGE - 8);
    }
    return wrong + check(memory, bytes, 1);
}

int main(int argc, char **argv) {
    MUST(zero = open("/dev/zero", O_RDONLY));
    size_t wrong = 1;
    if (!strcmp(argv[1], "read")) wrong = keep(PROT_READ);
    if (!strcmp(argv[1], "executed")) wrong = keep(PROT_READ | PROT_EXEC);
    if (!strcmp(argv[1], "code")) wrong = run_code();
    if (!strcmp(argv[1], "signals")) wrong = signals();
    if (!strcmp(argv[1], "libc")) wrong = calls();
    if (!strcmp(argv[1], "syscall")) by_number = 1, wrong = calls();
    if (!strcmp(argv[1], "flips")) wrong = flip();
    if (!strcmp(argv[1], "children")) wrong = children();
    if (!strcmp(argv[1], "zeros")) wrong = zeros();
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
