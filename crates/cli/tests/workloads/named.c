// A program with names that are not UTF-8: its own, which the kernel has cut within a character, and that of a file
// that it maps. Its fork child checks what it inherited.
#include "pages.h"
#include <sys/prctl.h>

#define BYTES (60 * MIB)
#define FILE_NAME "\xff\xfe"

int main(void) {
    MUST(prctl(PR_SET_NAME, "abcdefghijklmn\xc3\xa9"));
    int file = open(FILE_NAME, O_RDWR | O_CREAT, 0600);
    MUST(file);
    MUST(ftruncate(file, PAGE));
    MUST((intptr_t)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0));
    size_t wrong = 0;
    uint64_t *memory = map(BYTES);
    for (int round = 0; round < 4; round++) {
        fill(memory, BYTES, round);
        usleep(20000);
        wrong += check(memory, BYTES, round);
    }
    pid_t child = fork();
    MUST(child);
    if (!child) _exit(check(memory, BYTES, 3) != 0);
    int status;
    MUST(waitpid(child, &status, 0));
    printf("wrong: %zu, the child: %#x\n", wrong, status);
    MUST(unlink(FILE_NAME));
    return 0;
}
