/* scan FILE MIB PASSES: makes FILE of pages that do not compress, maps it shared and read-only, and reads it from its beginning to
 * its end so many times. Verifies each page. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define NEED(x) if (!(x)) { fprintf(stderr, "%d: ", __LINE__); perror(#x); exit(4); }

static uint64_t word(uint64_t number) {
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9ull;
    return (number ^ number >> 27) * 0x94d049bb133111ebull;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    uint64_t pages = strtoull(argv[2], 0, 10) * 256, passes = strtoull(argv[3], 0, 10);
    int fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    NEED(fd >= 0);
    for (uint64_t page = 0; page < pages; page++) {
        uint64_t words[512];
        for (int i = 0; i < 512; i++) words[i] = word(page * 512 + i);
        NEED(write(fd, words, 4096) == 4096);
    }
    NEED(fsync(fd) == 0 && close(fd) == 0);
    fd = open(argv[1], O_RDONLY);
    const uint64_t *file = mmap(0, pages * 4096, PROT_READ, MAP_SHARED, fd, 0);
    NEED(fd >= 0 && file != MAP_FAILED && close(fd) == 0);
    while (passes--)
        for (uint64_t i = 0; i < pages * 512; i++)
            if (file[i] != word(i)) {
                printf("word %lu of page %lu has %lx\n", i % 512, i / 512, file[i]);
                return 3;
            }
    puts("right");
    return 0;
}
