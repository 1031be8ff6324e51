// Fills memory of a kind that cannot be evicted, and waits until the file "go" is there.
#include "pages.h"
#include <sys/prctl.h>
#include <sys/stat.h>
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

enum { MEMORY = 60 };

// Fills memory that the program can only read and execute, and that nothing may make writable.
static void fill_by_file(uint64_t *p, size_t bytes, uint64_t seed) {
    static uint64_t page[512];
    static int file = -1;
    if (file == -1) MUST(file = open("/proc/self/mem", O_RDWR));
    for (size_t at = 0; at < bytes; at += PAGE) {
        for (size_t i = 0; i < 512; i++) page[i] = word(seed, at / 8 + i);
        // The kernel does not wait for an evicted page there.
        do {
            (void)*(volatile uint64_t *)((char *)p + at);
        } while (pwrite(file, page, PAGE, (off_t)(uintptr_t)p + at) != PAGE && errno == EIO);
    }
}

int main(int argc, char **argv) {
    size_t bytes = MEMORY * MIB;
    uint64_t *memory = MAP_FAILED;
    int access = !strcmp(argv[1], "read-only") ? PROT_READ : !strcmp(argv[1], "executed") ? PROT_EXEC : 0;
    int refused = !strcmp(argv[1], "refused");
    if (access) {
        memory = map(bytes);
    } else if (refused) {
        if (prctl(PR_SET_MDWE, 1, 0, 0, 0)) return REFUSED;
        memory = mmap(NULL, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    } else if (!strcmp(argv[1], "shared")) {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    } else if (!strcmp(argv[1], "locked")) {
        memory = map(bytes);
        if (mlock(memory, bytes)) return REFUSED;
    } else if (!strcmp(argv[1], "file")) {
        int fd = open("file", O_RDWR | O_CREAT, 0600);
        MUST(ftruncate(fd, bytes));
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    } else {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0);
    }
    if (memory == MAP_FAILED) return REFUSED;
    for (size_t done = 0; done < bytes; done += MIB) {
        (refused ? fill_by_file : fill)(memory + done / 8, MIB, done);
        // In small parts, so that none is paged before it is read-only.
        if (access) MUST(mprotect((char *)memory + done, MIB, access));
    }
    struct stat go;
    while (stat("go", &go)) usleep(20000);
    if (access) MUST(mprotect(memory, bytes, PROT_READ));
    size_t wrong = 0;
    for (size_t done = 0; done < bytes; done += MIB) wrong += check(memory + done / 8, MIB, done);
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
