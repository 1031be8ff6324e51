// Reads all that it has mapped, again and again, as a conservative collector or a leak checker does: directly ("read"), by
// locking and unlocking it ("lock"), by process_vm_readv ("ptrace"). Meanwhile a thread works on its memory.
#include "pages.h"
#include <sys/uio.h>

enum { OTHER = 60, ROUNDS = 12 };

static uint64_t *other;
static volatile int done;

static void *work(void *arg) {
    size_t *wrong = arg;
    for (int round = 0; round < ROUNDS; round++) *wrong += check(other, OTHER * MIB, 1);
    done = 1;
    return NULL;
}

// Reads the mappings that can be read, but for the kernel's own and those of its worker.
static size_t each(char how) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    size_t pages = 0;
    static char page[PAGE];
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char perms[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, perms) != 3 || perms[0] != 'r') continue;
        if (strstr(line, "[v") || (start <= (uintptr_t)other && (uintptr_t)other < end) || end - start > 8 * MIB) continue;
        if (how == 'l' && mlock((void *)start, end - start) == 0) munlock((void *)start, end - start);
        for (unsigned long at = start; at < end; at += PAGE) {
            struct iovec here = {page, PAGE}, there = {(void *)at, PAGE};
            if (how == 'p') pages += process_vm_readv(getpid(), &here, 1, &there, 1, 0) == PAGE;
            // A mapping of a file may be longer than the file.
            if (how == 'r' && (perms[1] == 'w' || perms[2] == 'x')) pages += *(volatile char *)at != 1;
        }
    }
    fclose(maps);
    return pages;
}

int main(int argc, char **argv) {
    other = map(OTHER * MIB);
    fill(other, OTHER * MIB, 1);
    size_t wrong = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, work, &wrong);
    while (!done) each(argv[1][0]);
    pthread_join(thread, NULL);
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
