/* browser KIB INCOMPRESSIBLE PROGRAM ARGUMENT...: holds KIB of memory, of which INCOMPRESSIBLE in 1000 pages do not compress. Of the
 * others an eighth are zeros, five eighths have f = 0.22, and two eighths f = 0.34. It is idle while PROGRAM runs, and checks its
 * pages at the end. */
#include "common.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static unsigned permille_of(uint64_t page, unsigned incompressible) {
    uint64_t x = mix64(page);
    unsigned eighth = x >> 32 & 7;
    if (x % 1000 < incompressible) return 1000;
    return eighth == 0 ? 0 : eighth < 6 ? 220 : 340;
}

int main(int argc, char **argv) {
    uint64_t pages = arg_u64(argc, argv, 1, 0) / 4, incompressible = arg_u64(argc, argv, 2, 0);
    if (argc < 4 || pages == 0 || incompressible > 1000) {
        fprintf(stderr, "usage: browser KIB INCOMPRESSIBLE PROGRAM ARGUMENT...; 4 KiB at least, 0 to 1000 in 1000\n");
        return 2;
    }
    unsigned char *mem = pages_map(pages);
    for (uint64_t p = 0; p < pages; p++) interleaved_make(mem + p * PAGE, p, 0, permille_of(p, incompressible));
    pid_t child;
    int status, error = posix_spawn(&child, argv[3], NULL, NULL, argv + 3, environ);
    if (error != 0) {
        fprintf(stderr, "browser: %s: %s\n", argv[3], strerror(error));
        return 2;
    }
    if (waitpid(child, &status, 0) != child) {
        perror("browser");
        return 2;
    }
    if (status != 0) return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
    for (uint64_t p = 0; p < pages; p++) interleaved_check(mem + p * PAGE, p, 0, permille_of(p, incompressible));
    return 0;
}
