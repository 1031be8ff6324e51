// A process and its fork child that each fill memory, a quarter of it with what does not compress, and then touch it at
// random, checking what they read. Arguments: MiB for each; with "term" both end on SIGTERM with status 7, after a check of
// every page. A process that finds a wrong page says so and ends with status 9.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
static volatile sig_atomic_t end;
static uint64_t seed;

static void on_term(int signal) {
    (void)signal;
    end = 1;
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0) _exit(8);
}

static uint64_t first(size_t page) {
    return seed ^ (page * 0x9e3779b97f4a7c15 + 1);
}

static void fill(uint64_t *at, size_t page) {
    uint64_t state = first(page);
    for (size_t word = 0; word < PAGE / 8; word++) at[word] = page % 4 == 1 || word % 64 == 0 ? next(&state) : page;
}

static void check(const uint64_t *at, size_t page, size_t word) {
    uint64_t state = first(page);
    if (at[0] != next(&state) || (page % 4 != 1 && word % 64 != 0 && at[word] != page)) {
        say("wrong\n");
        _exit(9);
    }
}

int main(int argc, char **argv) {
    size_t pages = ((size_t)atoi(argv[1]) << 20) / PAGE;
    if (argc > 2 && strcmp(argv[2], "term") == 0) signal(SIGTERM, on_term);
    int ends[2];
    if (pipe(ends) < 0) return 8;
    pid_t child = fork();
    seed = child == 0 ? 77 : 99;
    char *memory = malloc(pages * PAGE + PAGE);
    memory += PAGE - (uintptr_t)memory % PAGE;
    for (size_t page = 0; page < pages; page++) fill((uint64_t *)(memory + page * PAGE), page);
    char byte = 0;
    if (child == 0) {
        if (write(ends[1], &byte, 1) < 0) return 8;
    } else if (read(ends[0], &byte, 1) == 1) {
        say("both are full\n");
    }
    for (uint64_t state = seed; !end;) {
        size_t page = next(&state) % pages;
        check((uint64_t *)(memory + page * PAGE), page, state % (PAGE / 8));
    }
    for (size_t page = 0; page < pages; page++) check((uint64_t *)(memory + page * PAGE), page, 5);
    if (child == 0) return 7;
    int status = 0;
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    say(WIFEXITED(status) && WEXITSTATUS(status) == 7 ? "all pages are right\n" : "the child is not right\n");
    return 7;
}
