// Many small mappings, separated by pages without access, made and touched as fast as possible. Argument: MiB.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PIECE = 65536, GUARD = 4096 };

int main(int argc, char **argv) {
    size_t count = ((size_t)atoi(argv[argc - 1]) << 20) / PIECE, wrong = 0;
    uint64_t **pieces = calloc(count, sizeof *pieces);
    for (size_t i = 0; i < count; i++) {
        char *p = mmap(NULL, PIECE + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED || mprotect(p + PIECE, GUARD, PROT_NONE)) return 2;
        pieces[i] = (uint64_t *)p;
        for (size_t k = 0; k < PIECE / 8; k++) pieces[i][k] = i + k / 64;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < PIECE / 8; k++) wrong += pieces[i][k] != i + k / 64;
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
