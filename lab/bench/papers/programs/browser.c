/* browser KIB RANDOM PROGRAM ARGUMENT...: holds KIB of memory, of which RANDOM in 1000 pages do not compress. Of the others an eighth
 * are zeros, five eighths have f = 0.22, and two 0.34. It is idle while the program runs, and checks its pages at the end. */
#include "common.h"
#include <sys/wait.h>

static unsigned permille_of(uint64_t page, unsigned random) {
    uint64_t x = mix64(page);
    unsigned eighth = x >> 32 & 7;
    if (x % 1000 < random) return 1000;
    return eighth == 0 ? 0 : eighth < 6 ? 220 : 340;
}

int main(int argc, char **argv) {
    uint64_t pages = arg_u64(argc, argv, 1, 162304) / 4;
    unsigned random = arg_u64(argc, argv, 2, 90);
    if (argc < 4) {
        fprintf(stderr, "usage: browser KIB RANDOM PROGRAM ARGUMENT...\n");
        return 2;
    }
    unsigned char *mem = pages_map(pages);
    for (uint64_t p = 0; p < pages; p++) interleaved_make(mem + p * PAGE, p, 0, permille_of(p, random));
    pid_t child = fork();
    if (child == 0) {
        execv(argv[3], argv + 3);
        perror(argv[3]);
        _exit(127);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("browser");
        return 1;
    }
    if (status != 0) return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    for (uint64_t p = 0; p < pages; p++) interleaved_check(mem + p * PAGE, p, 0, permille_of(p, random));
    return 0;
}
