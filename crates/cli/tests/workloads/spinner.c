// Frees most of its memory while a thread computes without a system call, and works on the rest.
#include "pages.h"

enum { FREED = 24, KEPT = 20, ROUNDS = 200 };

static volatile int ended;

static void *spin(void *at) {
    while (!ended) {}
    return at;
}

int main(void) {
    pthread_t spinner;
    pthread_create(&spinner, NULL, spin, NULL);
    uint64_t *freed = map(FREED * MIB), *kept = map(KEPT * MIB);
    fill(freed, FREED * MIB, 1);
    fill(kept, KEPT * MIB, 2);
    size_t wrong = check(freed, FREED * MIB, 1);
    MUST(madvise(freed, FREED * MIB, MADV_DONTNEED));
    for (int round = 0; round < ROUNDS; round++) wrong += check(kept, KEPT * MIB, 2);
    wrong += check_empty(freed, FREED * MIB / 8);
    ended = 1;
    pthread_join(spinner, NULL);
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
