/* mapped FILE FILE_MIB MIB PASSES: makes FILE, maps it privately and read-only, and touches its pages and as many MIB of its own
 * at random; a child does as well. A part is unmapped, a part moved, a page written to after mprotect. All is verified.
 * With "differs" as fifth argument it looks instead for what docs/limits.md says of such mappings, and prints what it found. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t state = 88172645463325252ull;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* Every second page compresses to a half. */
static uint64_t word(uint64_t page, uint64_t i) {
    if (page % 2 && i % 2) return 0;
    uint64_t z = page * 0x9e3779b97f4a7c15ull + i * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    return z ^ (z >> 27);
}

static void check(const uint64_t *at, uint64_t page, const char *what) {
    for (int i = 0; i < 512; i += 7)
        if (at[i] != word(page, i)) {
            printf("%s: page %llu word %d is %llx\n", what, (unsigned long long)page, i, (unsigned long long)at[i]);
            exit(3);
        }
}

static void fill(uint64_t *at, uint64_t page) {
    for (int i = 0; i < 512; i++) at[i] = word(page, i);
}

static sigjmp_buf after_signal;

static void on_signal(int number) {
    siglongjmp(after_signal, number);
}

/* The signal that an access raises, or 0. */
static int raises(volatile uint64_t *at, int write) {
    signal(SIGSEGV, on_signal);
    signal(SIGBUS, on_signal);
    int number = sigsetjmp(after_signal, 1);
    if (!number && write) *at = 1;
    else if (!number) (void)*at;
    return number;
}

static void differs(uint64_t *file, uint64_t in_file, const char *name) {
    char line[512];
    int named = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strtoull(line, 0, 16) == (uintptr_t)file) named = strstr(line, name) != NULL;
    printf("named in maps: %s\n", named ? "yes" : "no");
    int number = raises(file + (in_file + 1) * 512, 0);
    printf("behind the end: %s\n", number == SIGBUS ? "SIGBUS" : number ? "SIGSEGV" : file[(in_file + 1) * 512] ? "data" : "zeros");
    number = raises(file + 3 * 512, 1);
    printf("a write: %s\n", number == SIGSEGV ? "SIGSEGV" : number ? "SIGBUS" : "nothing");
    void *larger = mremap(file, (in_file + 2) * 4096, (in_file + 64) * 4096, MREMAP_MAYMOVE);
    printf("mremap: %s\n", larger != MAP_FAILED ? "done" : strerrorname_np(errno));
}

#define NEED(x) if (!(x)) { perror(#x); return 4; }

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    uint64_t in_file = strtoull(argv[2], 0, 10) * 256, own = strtoull(argv[3], 0, 10) * 256;
    uint64_t passes = strtoull(argv[4], 0, 10), odd = 100;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(fd >= 0);
    static uint64_t page[512];
    for (uint64_t p = 0; p < in_file; p++) {
        fill(page, p);
        NEED(write(fd, page, 4096) == 4096);
    }
    fill(page, in_file);
    NEED(write(fd, page, odd) == (ssize_t)odd && fsync(fd) == 0);
    uint64_t *file = mmap(0, in_file * 4096 + odd, PROT_READ, MAP_PRIVATE, fd, 0);
    NEED(file != MAP_FAILED);
    if (argc > 5) {
        uint64_t *longer = mmap(0, (in_file + 2) * 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        NEED(longer != MAP_FAILED);
        uint64_t *mem = mmap(0, own * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        NEED(mem != MAP_FAILED);
        for (uint64_t p = 0; p < own; p++) fill(mem + p * 512, p + 7);
        for (uint64_t p = 0; p < own + in_file; p++)
            p < own ? check(mem + p * 512, p + 7, "own") : check(longer + (p - own) * 512, p - own, "file");
        differs(longer, in_file, argv[1]);
        /* What was written by mistake is not in the file. */
        NEED(pread(fd, page, 4096, 3 * 4096) == 4096);
        check(page, 3, "file");
        puts("right");
        return 0;
    }
    /* A second mapping of the same pages, from an offset on. */
    uint64_t *again = mmap(0, 64 * 4096, PROT_READ, MAP_PRIVATE, fd, 16 * 4096);
    NEED(again != MAP_FAILED);
    int other = open(argv[1], O_RDONLY);
    close(fd);
    uint64_t *mem = mmap(0, own * 4096 + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(mem != MAP_FAILED);
    for (uint64_t p = 0; p < own; p++) fill(mem + p * 512, p + 7);
    for (uint64_t k = 0; k < passes * (own + in_file); k++) {
        uint64_t p = draw() % (own + in_file);
        if (p < own) check(mem + p * 512, p + 7, "own");
        else check(file + (p - own) * 512, p - own, "file");
    }
    for (int i = 0; i < 64; i++) check(again + i * 512, i + 16, "again");
    /* Behind the end of the file there are zeros. */
    NEED(!memcmp(file + in_file * 512, page, odd) && ((char *)(file + in_file * 512))[odd] == 0);
    /* A page that is written to is anonymous from then on. */
    NEED(mprotect(file + 5 * 512, 4096, PROT_READ | PROT_WRITE) == 0);
    file[5 * 512] = 4711;
    NEED(munmap(file + 32 * 512, 16 * 4096) == 0);
    uint64_t *moved = mremap(file + 64 * 512, 32 * 4096, 32 * 4096, MREMAP_MAYMOVE | MREMAP_FIXED, again);
    NEED(moved == again);
    /* mremap may refuse to enlarge it; if it does not, the new pages are those of the file. */
    uint64_t *part = mmap(0, 4 * 4096, PROT_READ, MAP_PRIVATE, other, 8 * 4096);
    NEED(part != MAP_FAILED);
    uint64_t *larger = mremap(part, 4 * 4096, 8 * 4096, MREMAP_MAYMOVE);
    if (larger == MAP_FAILED) larger = part;
    else check(larger + 7 * 512, 15, "larger");
    check(larger, 8, "part");
    pid_t child = fork();
    NEED(child >= 0);
    for (uint64_t k = 0; k < own + in_file; k++) {
        uint64_t p = draw() % (own + in_file);
        if (p < own) check(mem + p * 512, p + 7, "own, after the fork");
        else if ((p -= own) != 5 && (p < 32 || p >= 96)) check(file + p * 512, p, "file, after the fork");
    }
    for (int i = 0; i < 32; i++) check(moved + i * 512, i + 64, "moved");
    for (int i = 32; i < 64; i++) check(again + i * 512, i + 16, "again");
    NEED(file[5 * 512] == 4711 && file[5 * 512 + 1] == word(5, 1));
    /* Never read before the fork. */
    check(larger + 3 * 512, 11, "part, after the fork");
    if (child == 0) _exit(0);
    int status;
    NEED(waitpid(child, &status, 0) == child && status == 0);
    puts("right");
    return 0;
}
