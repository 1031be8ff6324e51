// Fills memory with COPIES copies of a file, far more than fit, and compares each one twice: held FILE COPIES.
#include "pages.h"

int main(int count, char **words) {
    size_t copies = count > 2 ? strtoul(words[2], NULL, 10) : 1;
    int fd;
    MUST(fd = open(words[1], O_RDONLY));
    size_t bytes = lseek(fd, 0, SEEK_END);
    char *first = (char *)map(bytes), *all = (char *)map(copies * bytes);
    MUST(pread(fd, first, bytes, 0));
    size_t wrong = 0;
    for (int round = 0; round < 2; round++) {
        for (size_t copy = 0; copy < copies; copy++) {
            if (round == 0) memcpy(all + copy * bytes, first, bytes);
            wrong += memcmp(all + copy * bytes, first, bytes) != 0;
        }
    }
    printf("%zu\n", wrong);
    return wrong != 0;
}
