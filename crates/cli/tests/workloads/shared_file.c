/* shared_file FILE MIB ROUNDS [stopped]: makes FILE, maps it shared and read-only, and reads it by two threads and, from their
 * turn on, by a child and its child. In each round a process without memfit opens the file for writing, changes some pages and
 * closes it; from then on every reader must see the change, in each page. Parts of the mapping are unmapped and made unreadable
 * before. All contents are verified. With "stopped" a child is stopped while it maps the file and the file is changed: prints
 * what the child sees then. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(x) if (!(x)) { fprintf(stderr, "%d: ", __LINE__); perror(#x); exit(4); }

static const char *name;
static uint64_t pages;
/* In memory that all processes share: what each page has. */
static _Atomic uint64_t *generation;
static _Atomic uint64_t *reads;
static _Atomic int *quit;

static uint64_t word(uint64_t page, uint64_t round, uint64_t i) {
    if (i % 2) return round;
    uint64_t z = (page * 1000003 + round) * 0x9e3779b97f4a7c15ull + i * 0xbf58476d1ce4e5b9ull;
    return (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
}

static int holes(uint64_t page) {
    return page >= 40 && page < 60;
}

/* A page is as old as the generation that was published before the look, or newer. A writer changes it while nobody looks. */
static void check(const uint64_t *file, uint64_t page, const char *who) {
    uint64_t before = atomic_load(&generation[page]);
    uint64_t found = file[page * 512 + 1];
    uint64_t after = atomic_load(&generation[page]);
    if (before & 1 || before != after) return;
    for (int i = 0; i < 512; i += 5)
        if (file[page * 512 + i] != word(page, before, i) && atomic_load(&generation[page]) == before) {
            printf("%s: page %lu has %lu, not %lu\n", who, page, found, before);
            _exit(3);
        }
    atomic_fetch_add(reads, 1);
}

static void read_for_ever(const uint64_t *file, uint64_t seed, const char *who) {
    uint64_t state = seed * 88172645463325252ull + 1;
    while (!atomic_load(quit)) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        uint64_t page = state % pages;
        if (!holes(page)) check(file, page, who);
    }
}

static const uint64_t *mapped;

static void *reader(void *number) {
    read_for_ever(mapped, (uintptr_t)number, "thread");
    return 0;
}

/* Generations are even; while a page is written it has an odd one. */
static void write_page(int fd, uint64_t page, uint64_t round) {
    uint64_t words[512];
    for (int i = 0; i < 512; i++) words[i] = word(page, round, i);
    NEED(pwrite(fd, words, 4096, page * 4096) == 4096);
}

static void wait_for_reads(uint64_t more) {
    uint64_t until = atomic_load(reads) + more;
    while (atomic_load(reads) < until) usleep(1000);
}

static int is_the_files(const void *at) {
    char line[512];
    int named = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    NEED(maps);
    while (fgets(line, sizeof line, maps))
        if (strtoull(line, 0, 16) == (uintptr_t)at) named = strstr(line, name) && !strstr(line, "memfd:");
    fclose(maps);
    return named;
}

/* So that the pages are the pager's, and some are outside. */
static void map_again(void) {
    int fd = open(name, O_RDONLY);
    mapped = mmap(0, pages * 4096, PROT_READ, MAP_SHARED, fd, 0);
    NEED(mapped != MAP_FAILED && close(fd) == 0);
    printf("paged again: %s\n", is_the_files(mapped) ? "no" : "yes");
    fflush(stdout);
    for (uint64_t p = 0; p < pages; p++) check(mapped, p, "mapped again");
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    name = argv[1];
    pages = strtoull(argv[2], 0, 10) * 256;
    uint64_t rounds = strtoull(argv[3], 0, 10);
    size_t common = pages * 8 + 8192;
    generation = mmap(0, common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(generation != MAP_FAILED);
    reads = (void *)((char *)generation + pages * 8);
    quit = (void *)(reads + 1);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(fd >= 0);
    for (uint64_t p = 0; p < pages; p++) write_page(fd, p, 0);
    /* While it is open for writing, the kernel maps it. */
    void *early = mmap(0, pages * 4096, PROT_READ, MAP_SHARED, fd, 0);
    NEED(early != MAP_FAILED && is_the_files(early) && mprotect(early, 4096, PROT_READ | PROT_WRITE) == 0);
    NEED(mprotect(early, 4096, PROT_READ) == 0);
    early = mremap(early, pages * 4096, (pages + 16) * 4096, MREMAP_MAYMOVE);
    NEED(early != MAP_FAILED && munmap(early, (pages + 16) * 4096) == 0);
    NEED(fsync(fd) == 0 && close(fd) == 0);

    fd = open(name, O_RDONLY);
    mapped = mmap(0, pages * 4096, PROT_READ, MAP_SHARED, fd, 0);
    NEED(fd >= 0 && mapped != MAP_FAILED);
    uint64_t *part = mmap(0, 300 * 4096, PROT_READ, MAP_SHARED, fd, 8 * 4096);
    NEED(part != MAP_FAILED && close(fd) == 0);
    printf("paged: %s\n", is_the_files(mapped) ? "no" : "yes");
    if (!is_the_files(mapped)) {
        void *free_place = mmap(0, 300 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        NEED(free_place != MAP_FAILED);
        void *moved = mremap(part, 300 * 4096, 300 * 4096, MREMAP_MAYMOVE | MREMAP_FIXED, free_place);
        printf("mremap: %s\n", moved == MAP_FAILED && errno == ENOMEM ? "ENOMEM" : "done");
    }
    NEED(mprotect((void *)mapped, 4096, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
    NEED(munmap((void *)(mapped + 40 * 512), 10 * 4096) == 0);
    NEED(mprotect((void *)(mapped + 50 * 512), 10 * 4096, PROT_NONE) == 0);
    if (argc > 4) {
        pid_t child = fork();
        NEED(child >= 0);
        if (!child) {
            check(mapped, 7, "not stopped yet");
            read_for_ever(mapped, 9, "stopped");
            _exit(mapped[7 * 512] != word(7, 2, 0) || !is_the_files(mapped));
        }
        wait_for_reads(1000);
        kill(child, SIGSTOP);
        NEED(munmap((void *)mapped, pages * 4096) == 0 && munmap(part, 300 * 4096) == 0);
        int writer = open(name, O_RDWR), status;
        NEED(writer >= 0);
        atomic_store(&generation[7], 1);
        write_page(writer, 7, 2);
        atomic_store(&generation[7], 2);
        atomic_store(quit, 1);
        kill(child, SIGCONT);
        NEED(waitpid(child, &status, 0) == child);
        printf("the stopped child: %s\n", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : status ? "wrong" : "right");
        return 0;
    }
    pthread_t threads[2];
    for (uintptr_t t = 0; t < 2; t++) NEED(pthread_create(&threads[t], 0, reader, (void *)(t + 1)) == 0);
    wait_for_reads(pages);
    pid_t child = 0, writer;
    for (uint64_t round = 1; round <= rounds; round++) {
        if (round == rounds / 2 + 1) {
            const uint64_t *again = mapped;
            map_again();
            child = fork();
            NEED(child >= 0);
            if (!child) {
                pid_t grandchild = fork();
                NEED(grandchild >= 0);
                read_for_ever(mapped, 5 + !grandchild, grandchild ? "child" : "grandchild");
                int status = 0;
                if (grandchild) NEED(waitpid(grandchild, &status, 0) == grandchild);
                _exit(status != 0);
            }
            wait_for_reads(pages);
            for (uint64_t p = 0; p < pages; p++) if (!holes(p)) check(again, p, "of before");
        }
        /* A process of its own, which does not map the file. */
        NEED((writer = fork()) >= 0);
        if (!writer) {
            munmap((void *)mapped, pages * 4096);
            int out = open(name, O_RDWR);
            NEED(out >= 0);
            for (uint64_t p = round; p < pages; p += 16) {
                atomic_store(&generation[p], round * 2 - 1);
                write_page(out, p, round * 2);
                atomic_store(&generation[p], round * 2);
            }
            _exit(close(out) != 0);
        }
        int status;
        NEED(waitpid(writer, &status, 0) == writer && status == 0);
        for (uint64_t p = 0; p < pages; p++) if (!holes(p)) check(mapped, p, "main");
        for (uint64_t p = 8; p < 308; p++) {
            if (part[(p - 8) * 512 + 1] != atomic_load(&generation[p])) { printf("part: page %lu\n", p); return 3; }
        }
        wait_for_reads(500);
    }
    printf("the file's: %s\n", is_the_files(mapped) ? "yes" : "no");
    atomic_store(quit, 1);
    for (int t = 0; t < 2; t++) NEED(pthread_join(threads[t], 0) == 0);
    int status = 0;
    if (child) NEED(waitpid(child, &status, 0) == child && status == 0);
    /* The process itself opens the file for writing. */
    map_again();
    int own = open(name, O_RDWR);
    NEED(own >= 0 && is_the_files(mapped));
    write_page(own, 3, 1000);
    atomic_store(&generation[3], 1000);
    for (uint64_t p = 0; p < pages; p++) check(mapped, p, "written by itself");
    NEED(close(own) == 0);
    /* It is the kernel's now: it may grow, and what is mapped when it is gone is like anything else. */
    void *larger = mremap((void *)mapped, pages * 4096, (pages + 16) * 4096, MREMAP_MAYMOVE);
    NEED(larger != MAP_FAILED && munmap(larger, (pages + 16) * 4096) == 0 && munmap(part, 300 * 4096) == 0);
    for (int i = 0; i < 3; i++) {
        char *plain = mmap(0, 80 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        NEED(plain != MAP_FAILED && mprotect(plain, 80 << 20, PROT_READ | PROT_WRITE) == 0);
        plain[i] = 1;
    }
    /* It is detached. Whether the kernel lets it enter a user namespace does not matter. */
    map_again();
    (void)!unshare(CLONE_NEWUSER);
    NEED(is_the_files(mapped));
    for (uint64_t p = 0; p < pages; p++) check(mapped, p, "detached");
    puts("right");
    return 0;
}
