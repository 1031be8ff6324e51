// Locks all of its memory, before anything is evicted ("early"), or when much of it is. Locked memory is counted, and nothing
// else happens.
#include "pages.h"

enum { OTHER = 40, LATE = 8 };

int main(int argc, char **argv) {
    int early = argc > 1 && !strcmp(argv[1], "early");
    if (early && mlockall(MCL_CURRENT | MCL_FUTURE)) return REFUSED;
    uint64_t *other = map(OTHER * MIB);
    fill(other, OTHER * MIB, 1);
    size_t wrong = check(other, OTHER * MIB, 1);
    if (!early && mlockall(MCL_CURRENT | MCL_FUTURE)) return REFUSED;
    uint64_t *late = map(LATE * MIB);
    fill(late, LATE * MIB, 2);
    for (int round = 0; round < 3; round++) wrong += check(other, OTHER * MIB, 1) + check(late, LATE * MIB, 2);
    MUST(munlockall());
    // Now it can be evicted.
    uint64_t *more = map(OTHER * MIB);
    fill(more, OTHER * MIB, 3);
    for (int round = 0; round < 3; round++)
        wrong += check(more, OTHER * MIB, 3) + check(other, OTHER * MIB, 1) + check(late, LATE * MIB, 2);
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
