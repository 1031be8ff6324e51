// Fills memory as fast as it can, then verifies it. Argument: MiB.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    size_t bytes = (size_t)atoi(argv[argc - 1]) << 20, wrong = 0;
    unsigned char *p = malloc(bytes);
    for (int round = 1; round <= 2; round++) {
        memset(p, round, bytes);
        for (size_t i = 0; i < bytes; i += 4096) p[i + i / 4096 % 4096] = (unsigned char)(i / 4096);
        for (size_t i = 0; i < bytes; i += 4096)
            wrong += p[i + i / 4096 % 4096] != (unsigned char)(i / 4096) || p[i + (i / 4096 + 9) % 4096] != round;
    }
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
