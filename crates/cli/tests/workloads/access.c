// Works on memory that is writable and executable, as run-time compilers have it ("rwx"), or only writable ("w").
#include "pages.h"

enum { MEMORY = 60, ROUNDS = 4 };

int main(int argc, char **argv) {
    int executed = !strcmp(argv[1], "rwx");
    int access = executed ? PROT_READ | PROT_WRITE | PROT_EXEC : PROT_WRITE;
    uint64_t *memory = mmap(NULL, MEMORY * MIB, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return REFUSED;
    size_t wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        fill(memory, MEMORY * MIB, round);
        // On x86 what can be written can be read.
        wrong += check(memory, MEMORY * MIB, round);
    }
    if (executed) {
        static const unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3};
        memcpy((char *)memory + MIB, code, sizeof code);
        fill(memory + MIB / 4, 40 * MIB, 9);
        wrong += ((int (*)(void))((char *)memory + MIB))() != 42;
    }
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
