// Workers that are forked from a process with a table. They read the table at random, and each
// writes to memory of its own. Argument: MiB of the table. All contents are verified.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 4, OWN = 6 << 20, PAGE = 4096, STEPS = 30000 };

static unsigned char *map(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        exit(2);
    return at;
}

// Word i of page n: a third of the words differ from page to page.
static uint64_t word(uint64_t n, size_t i) {
    return i % 3 ? i * 7 : (n * 0x9e3779b97f4a7c15u ^ i) >> 8;
}

static void fill(unsigned char *at, uint64_t n) {
    for (size_t i = 0; i < PAGE / 8; i++)
        ((uint64_t *)at)[i] = word(n, i);
}

static int differs(const unsigned char *at, uint64_t n) {
    for (size_t i = 0; i < PAGE / 8; i++)
        if (((const uint64_t *)at)[i] != word(n, i))
            return 1;
    return 0;
}

static int work(const unsigned char *table, size_t pages, unsigned worker) {
    unsigned char *own = map(OWN);
    uint32_t *turns = calloc(OWN / PAGE, sizeof *turns);
    uint64_t random = 88172645463325252u + worker * 7919;
    int wrong = 0;
    for (int step = 0; step < STEPS; step++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        size_t of_table = random % pages, of_own = (random >> 32) % (OWN / PAGE);
        wrong += differs(table + of_table * PAGE, of_table);
        if (turns[of_own])
            wrong += differs(own + of_own * PAGE, of_own * 1000 + turns[of_own]);
        fill(own + of_own * PAGE, of_own * 1000 + ++turns[of_own]);
    }
    return wrong ? 1 : 0;
}

int main(int count, char **arguments) {
    size_t pages = (count > 1 ? strtoul(arguments[1], NULL, 10) : 24) << 20 >> 12;
    unsigned char *table = map(pages * PAGE);
    int wrong = 0, status;
    for (size_t page = 0; page < pages; page++)
        fill(table + page * PAGE, page);
    for (unsigned worker = 0; worker < WORKERS; worker++) {
        pid_t child = fork();
        if (child < 0)
            return 2;
        if (child == 0)
            _exit(work(table, pages, worker));
    }
    while (wait(&status) > 0)
        wrong += status != 0;
    for (size_t page = 0; page < pages; page++)
        wrong += differs(table + page * PAGE, page);
    printf("wrong: %d\n", wrong);
    return wrong != 0;
}
