/* page_cache FILE MIB: makes FILE, and has programs map it shared and read-only, four at a time and then one more, when the
 * others have ended. Each reads pages at random and verifies them. The last one also writes there by mistake, reads behind the
 * end of the file, drops its view of the pages, locks the file, forks, and gives up rights: all as with a mapping by the kernel.
 * Then one makes its mapping writable by a bare system call and changes it, and one truncates the file without opening it for
 * writing. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(x) if (!(x)) { fprintf(stderr, "%d: ", __LINE__); perror(#x); exit(4); }

static uint64_t pages;
static sigjmp_buf back;

static uint64_t word(uint64_t page, uint64_t i) {
    return i % 8 ? page : page * 0x9e3779b97f4a7c15ull + i;
}

static void check(const uint64_t *file, uint64_t page) {
    for (int i = 0; i < 512; i++)
        if (file[page * 512 + i] != word(page, i)) {
            printf("page %lu has %lx\n", page, file[page * 512 + i]);
            exit(3);
        }
}

static void read_at_random(const uint64_t *file, uint64_t seed, uint64_t count) {
    uint64_t state = seed * 88172645463325252ull + 1;
    while (count--) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        check(file, state % pages);
    }
}

static void caught(int signal) {
    siglongjmp(back, signal);
}

/* The signal that an access raises; 0 if it raises none. */
static int raised(volatile char *at, int writes) {
    int signal = sigsetjmp(back, 1);
    if (signal) return signal;
    if (writes) *at = 1; else (void)*at;
    return 0;
}

static int is_the_kernels(const void *at) {
    char line[512];
    int is = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    NEED(maps);
    while (fgets(line, sizeof line, maps))
        if (strtoull(line, 0, 16) == (uintptr_t)at) is = !strstr(line, "memfd:");
    fclose(maps);
    return is;
}

static const uint64_t *map(const char *name) {
    int fd = open(name, O_RDONLY);
    const uint64_t *file = mmap(0, (pages + 2) * 4096, PROT_READ, MAP_SHARED, fd, 0);
    NEED(fd >= 0 && file != MAP_FAILED && close(fd) == 0);
    return file;
}

/* Nobody has the file locked when all that have mapped it have gone. */
static void lock(const char *name) {
    for (int i = 0; i < 2; i++) {
        int fd = open(name, O_RDONLY);
        NEED(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
        void *file = mmap(0, pages * 4096, PROT_READ, MAP_SHARED, fd, 0);
        NEED(file != MAP_FAILED && munmap(file, pages * 4096) == 0 && close(fd) == 0);
    }
}

static int spoils(const char *name) {
    const uint64_t *file = map(name);
    check(file, 5);
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(SYS_mprotect), "D"(file), "S"(pages * 4096), "d"(PROT_READ | PROT_WRITE) : "rcx", "r11", "memory");
    NEED(result == 0);
    ((uint64_t *)file)[5 * 512] ^= 1;
    for (volatile uint64_t sum = 0, page = 6;; page = (page + 1) % pages)
        if (page != 5) sum += file[page * 512];
}

static int truncates(const char *name) {
    const uint64_t *file = map(name);
    for (uint64_t page = 0; page < pages; page += 2) check(file, page);
    int fd = open(name, O_RDONLY | O_TRUNC);
    NEED(fd >= 0 && close(fd) == 0);
    volatile uint64_t sum = 0;
    for (uint64_t i = 0; i < 3 * pages; i++) sum += file[i % pages * 512];
    puts("truncated");
    return 0;
}

static int reads(const char *name, uint64_t seed, int last) {
    int status;
    const uint64_t *file = map(name);
    read_at_random(file, seed, 2 * pages);
    if (!last) return 0;
    lock(name);
    signal(SIGSEGV, caught), signal(SIGBUS, caught);
    printf("write: %s\n", raised((char *)file + 8192, 1) == SIGSEGV ? "SIGSEGV" : "no signal");
    printf("behind the end: %s\n", raised((char *)(file + pages * 512), 0) == SIGBUS ? "SIGBUS" : "no signal");
    NEED(madvise((void *)file, pages * 4096, MADV_DONTNEED) == 0);
    NEED(madvise((void *)file, 4096, MADV_REMOVE) == -1 && errno == EACCES);
    NEED(mremap((void *)file, 0, 4096, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
    pid_t child = fork();
    NEED(child >= 0);
    read_at_random(file, seed + !child, pages);
    for (uint64_t page = 0; page < pages; page++) check(file, page);
    if (!child) {
        NEED(!is_the_kernels(file));
        if (getuid() == 0) NEED(setresuid(65534, 65534, 65534) == 0 && is_the_kernels(file));
        for (uint64_t page = 0; page < pages; page++) check(file, page);
        _exit(0);
    }
    NEED(waitpid(child, &status, 0) == child && status == 0);
    puts("right");
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    pages = strtoull(argv[2], 0, 10) * 256;
    if (argc > 3) {
        if (!strcmp(argv[3], "spoils")) return spoils(argv[1]);
        if (!strcmp(argv[3], "truncates")) return truncates(argv[1]);
        return reads(argv[1], strtoull(argv[3], 0, 10), argc > 4);
    }
    int fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600), status;
    NEED(fd >= 0);
    for (uint64_t page = 0; page < pages; page++) {
        uint64_t words[512];
        for (int i = 0; i < 512; i++) words[i] = word(page, i);
        NEED(write(fd, words, 4096) == 4096);
    }
    NEED(fsync(fd) == 0 && close(fd) == 0);
    const char *all[] = {"1", "2", "3", "4", "5", "spoils", "6", "truncates"};
    for (int i = 0; i < 8; i++) {
        pid_t child = fork();
        NEED(child >= 0);
        if (!child) {
            execl("/proc/self/exe", argv[0], argv[1], argv[2], all[i], i == 4 ? "last" : NULL, NULL);
            _exit(4);
        }
        if (i < 3) continue;
        for (int j = i == 3 ? 4 : 1; j; j--) {
            NEED(wait(&status) > 0 && (i == 5 || status == 0));
            if (i == 5) printf("spoilt: %s\n", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "not noticed");
            fflush(stdout);
        }
    }
    return 0;
}
