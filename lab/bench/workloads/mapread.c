/* mapread FILE random|skewed|scan COUNT [advised]: maps a file shared and read-only and adds up its pages: COUNT of them at
 * random, COUNT where an eighth of the pages gets half of the accesses, or all of them COUNT times in order. "advised":
 * MADV_RANDOM. Prints the sum. */
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pages.h"

static uint64_t page_sum(const uint64_t *at) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < WORDS; i++) sum = sum * 31 + at[i];
    return sum;
}

int main(int argc, char **argv) {
    struct stat info;
    int fd = argc > 3 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0 || fstat(fd, &info)) { perror("mapread FILE ORDER COUNT"); return 2; }
    uint64_t pages = (uint64_t)info.st_size / PAGE, count = arg_u64(argc, argv, 3, 1), sum = 0, state = 1;
    const uint64_t *at = mmap(0, pages * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) { perror("mmap"); return 1; }
    close(fd);
    if (argc > 4 && !strcmp(argv[4], "advised")) madvise((void *)at, pages * PAGE, MADV_RANDOM);
    if (!strcmp(argv[2], "scan")) {
        for (uint64_t k = 0; k < count * pages; k++) sum = sum * 31 + page_sum(at + k % pages * WORDS);
    } else {
        int skewed = !strcmp(argv[2], "skewed");
        for (uint64_t k = 0; k < count; k++) {
            state = mix64(state);
            uint64_t page = (state >> 1) % pages;
            /* The favoured pages are spread over the file. */
            if (skewed && state & 1) page = page / 8 * 8;
            sum = sum * 31 + page_sum(at + page * WORDS);
        }
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
