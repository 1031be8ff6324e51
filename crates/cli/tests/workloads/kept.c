// Fills memory of a kind that userfaultfd cannot take away, and waits until the file "go" is there.
#include "pages.h"
#include <sys/stat.h>
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif

enum { MEMORY = 60 };

int main(int argc, char **argv) {
    size_t bytes = MEMORY * MIB;
    uint64_t *memory = MAP_FAILED;
    if (!strcmp(argv[1], "read-only")) {
        memory = map(bytes);
    } else if (!strcmp(argv[1], "file")) {
        int fd = open("file", O_RDWR | O_CREAT, 0600);
        MUST(ftruncate(fd, bytes));
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    } else {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0);
    }
    if (memory == MAP_FAILED) return REFUSED;
    for (size_t done = 0; done < bytes; done += MIB) {
        fill(memory + done / 8, MIB, done);
        // In small parts: what is read-only was not paged before.
        if (!strcmp(argv[1], "read-only")) MUST(mprotect((char *)memory + done, MIB, PROT_READ));
    }
    struct stat go;
    while (stat("go", &go)) usleep(20000);
    size_t wrong = 0;
    for (size_t done = 0; done < bytes; done += MIB) wrong += check(memory + done / 8, MIB, done);
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
