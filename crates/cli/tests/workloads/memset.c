// Fills memory as fast as it can, then verifies it. Arguments: MiB; how many of these programs run in this directory. Each
// keeps its memory until all have filled theirs: each adds a byte to the file "filled".
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv) {
    size_t bytes = (size_t)atoi(argv[1]) << 20, wrong = 0;
    unsigned char *p = malloc(bytes);
    for (int round = 1; round <= 2; round++) {
        memset(p, round, bytes);
        for (size_t i = 0; i < bytes; i += 4096) p[i + i / 4096 % 4096] = (unsigned char)(i / 4096);
        for (size_t i = 0; i < bytes; i += 4096)
            wrong += p[i + i / 4096 % 4096] != (unsigned char)(i / 4096) || p[i + (i / 4096 + 9) % 4096] != round;
    }
    int filled = argc > 2 ? open("filled", O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    struct stat all = {0};
    if (filled >= 0 && write(filled, "f", 1) == 1)
        for (int i = 0; i < 60000 && !fstat(filled, &all) && all.st_size < atoi(argv[2]); i++) usleep(1000);
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
