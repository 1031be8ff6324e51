/* A big process starts a thousand short-lived children in several ways: they verify what they inherit, become another
 * program, or leave a zombie for a while. */
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 12288, CHILDREN = 1000 };
extern char **environ;
static uint64_t (*memory)[512];

static int wrong(int page) {
    for (int i = 0; i < 512; i++)
        if (memory[page][i] != (uint64_t)page * 777 + i) return 1;
    return 0;
}

int main(void) {
    char *words[] = {"true", 0};
    memory = mmap(0, 4096ul * PAGES, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < PAGES; page++)
        for (int i = 0; i < 512; i++) memory[page][i] = (uint64_t)page * 777 + i;
    int bad = 0, zombies = 0;
    for (int n = 0; n < CHILDREN; n++) {
        pid_t pid = -1;
        if (n % 4 == 0) {
            if (posix_spawnp(&pid, "true", 0, 0, words, environ)) bad++;
        } else if (n % 4 == 1) {
            pid = vfork();
            if (pid == 0) {
                execvp("true", words);
                _exit(127);
            }
        } else {
            pid = fork();
            if (pid == 0) {
                for (int i = 0; i < 40; i++)
                    if (wrong((n * 40 + i) % PAGES)) _exit(9);
                if (n % 4 == 3) _exit(0);
                execvp("true", words);
                _exit(127);
            }
        }
        if (n % 50 == 3) {
            zombies++;
            continue;
        }
        int status = 1;
        if (waitpid(pid, &status, 0) != pid || status) bad++, fprintf(stderr, "child %d: status %x\n", n, status);
    }
    for (; zombies > 0; zombies--) {
        int status = 1;
        if (wait(&status) < 0 || status) bad++;
    }
    for (int page = 0; page < PAGES; page++) bad += wrong(page);
    printf("%d children, %d wrong\n", CHILDREN, bad);
    return bad != 0;
}
