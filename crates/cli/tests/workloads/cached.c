// Threads end, glibc keeps their stacks, and memory gets short. Then new threads start on these stacks and end at once by a
// bare system call: what the kernel needs of their descriptors must never have been evicted.
#include "pages.h"
#include <sys/syscall.h>

enum { THREADS = 4, MEMORY = 60, ROUNDS = 3 };

static pthread_t descriptors[THREADS];

static void *note(void *at) {
    *(pthread_t *)at = pthread_self();
    return at;
}

static void *leave(void *at) {
    syscall(SYS_exit, 0);
    return at;
}

static int missing(int pagemap, const void *at) {
    uint64_t entry = 0;
    MUST(pread(pagemap, &entry, 8, (uintptr_t)at / PAGE * 8));
    return !(entry >> 63);
}

int main(void) {
    pthread_t threads[THREADS];
    uint64_t *memory = map(MEMORY * MIB);
    int pagemap = open("/proc/self/pagemap", O_RDONLY), gone = 0;
    MUST(pagemap);
    size_t wrong = 0;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, note, &descriptors[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int round = 0; round < ROUNDS; round++) {
        fill(memory, MEMORY * MIB, round);
        wrong += check(memory, MEMORY * MIB, round);
        for (int i = 0; i < THREADS; i++) gone += missing(pagemap, (void *)descriptors[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, leave, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("wrong: %zu\ndescriptors that were taken: %d\n", wrong, gone);
    return wrong != 0;
}
