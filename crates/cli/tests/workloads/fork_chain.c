/* A chain of forks: each process verifies what it inherited, changes a part of it and forks the next one; the last verifies
 * all. On the way back each verifies that its own memory is as it left it.
 *
 * Usage: fork_chain LEVELS MIB */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t (*memory)[512];
static int pages, levels;

/* The level that wrote a page last, at some level: each writes every 64th, in turn. */
static int writer(int page, int level) {
    int last = level - (level - page % 64 + 64) % 64;
    return last < 1 ? 0 : last;
}

static uint64_t word(int page, int i, int by) {
    return i % 8 ? (uint64_t)page * 512 + i : ((uint64_t)by << 32 | page) * 0x9e3779b97f4a7c15u;
}

static void fill(int page, int by) {
    for (int i = 0; i < 512; i++) memory[page][i] = word(page, i, by);
}

static int wrong(int level, int first, int step) {
    for (int page = first; page < pages; page += step)
        for (int i = 0; i < 512; i++)
            if (memory[page][i] != word(page, i, writer(page, level))) {
                fprintf(stderr, "level %d: page %d word %d is %lx\n", level, page, i, memory[page][i]);
                return 1;
            }
    return 0;
}

static int run(int level) {
    if (wrong(level - 1, level % 16, level == levels ? 1 : 16)) return 1;
    for (int page = level % 64; page < pages; page += 64) fill(page, level);
    if (level == levels) return 0;
    pid_t pid = fork();
    if (pid == 0) _exit(run(level + 1));
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status) {
        if (WIFSIGNALED(status) || pid < 0) fprintf(stderr, "level %d: its child: %d, status %x\n", level, pid, status);
        return 1;
    }
    return wrong(level, level % 16, 16);
}

int main(int count, char **words) {
    levels = count > 1 ? atoi(words[1]) : 10;
    pages = (count > 2 ? atoi(words[2]) : 8) * 256;
    memory = mmap(0, 4096ul * pages, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < pages; page++) fill(page, 0);
    int result = run(1);
    printf("%d levels: %s\n", levels, result ? "WRONG" : "right");
    return result;
}
