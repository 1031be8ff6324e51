// A heap, and memory that is mapped below other memory, grow by pages: the kernel makes one mapping of each. Prints in
// how many mappings they are, if there are more than a few.
#include "pages.h"

#define BYTES (60 * MIB)
#define STEPS 600
#define FEW 60

int main(void) {
    size_t wrong = 0;
    uint64_t *memory = map(BYTES), *steps[2 * STEPS];
    fill(memory, BYTES, 1);
    for (int i = 0; i < STEPS; i++) {
        uint64_t *heap = sbrk(PAGE);
        MUST((intptr_t)heap);
        steps[2 * i] = heap, steps[2 * i + 1] = map(PAGE);
        fill(steps[2 * i], PAGE, 2 * i);
        fill(steps[2 * i + 1], PAGE, 2 * i + 1);
        usleep(4000);
    }
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int mappings = 0;
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx", &start, &end) != 2) return 1;
        int i = 0;
        while (i < 2 * STEPS && ((uintptr_t)steps[i] < start || (uintptr_t)steps[i] >= end)) i++;
        mappings += i < 2 * STEPS;
    }
    fclose(maps);
    for (int i = 0; i < 2 * STEPS; i++) wrong += check(steps[i], PAGE, i);
    wrong += check(memory, BYTES, 1);
    printf("wrong: %zu, mappings: %s\n", wrong, mappings <= FEW ? "few" : "many");
    if (mappings > FEW) printf("%d\n", mappings);
    return 0;
}
