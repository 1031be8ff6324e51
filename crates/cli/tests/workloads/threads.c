// Threads with heaps of their own, verified block by block, beside threads that come and go.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 4, BLOCKS = 1500, ROUNDS = 12000, VISITORS = 400 };

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

struct block {
    uint64_t *words, seed;
    size_t count;
};

static void fill(struct block *b, uint64_t seed) {
    b->seed = seed;
    for (size_t i = 0; i < b->count; i++) b->words[i] = i % 8 ? seed + i : next(&seed);
}

static uint64_t verify(const struct block *b, int worker) {
    uint64_t seed = b->seed, sum = 0, base = b->seed;
    for (size_t i = 0; i < b->count; i++) {
        uint64_t want = i % 8 ? seed + i : next(&seed);
        if (b->words[i] != want) {
            printf("MISMATCH worker %d word %zu of %zu: %lx, not %lx\n", worker, i, b->count, b->words[i], want);
            exit(3);
        }
        sum = sum * 31 + want;
    }
    return sum ^ base;
}

static __thread uint64_t local[2000];

static void *worker(void *arg) {
    int number = (int)(intptr_t)arg;
    uint64_t state = 1000003u * (number + 1), sum = 0;
    struct block *blocks = calloc(BLOCKS, sizeof *blocks);
    for (int round = 0; round < ROUNDS; round++) {
        struct block *b = &blocks[next(&state) % BLOCKS];
        if (b->words) sum += verify(b, number);
        if (!b->words || next(&state) % 4 == 0) {
            free(b->words);
            b->count = 16 + next(&state) % 4096 * (next(&state) % 50 ? 1 : 8);
            b->words = malloc(b->count * 8);
        }
        fill(b, next(&state) | 1);
        local[round % 2000] += sum;
    }
    for (int i = 0; i < BLOCKS; i++) sum += blocks[i].words ? verify(&blocks[i], number) : 0;
    for (int i = 0; i < 2000; i++) sum += local[i];
    return (void *)sum;
}

static void *visitor(void *arg) {
    uint64_t sum = 0;
    for (int i = 0; i < 2000; i++) sum += local[i], local[i] = (uint64_t)(intptr_t)arg;
    char *p = malloc(50000);
    memset(p, (int)(intptr_t)arg, 50000);
    sum += p[49999];
    free(p);
    return (void *)sum;
}

int main(void) {
    pthread_t workers[WORKERS];
    for (intptr_t i = 0; i < WORKERS; i++) pthread_create(&workers[i], NULL, worker, (void *)i);
    uint64_t visits = 0;
    for (intptr_t i = 0; i < VISITORS; i++) {
        pthread_t two[2];
        for (int k = 0; k < 2; k++) pthread_create(&two[k], NULL, visitor, (void *)(i % 100));
        for (int k = 0; k < 2; k++) {
            void *sum;
            pthread_join(two[k], &sum);
            visits += (uint64_t)sum;
        }
    }
    for (int i = 0; i < WORKERS; i++) {
        void *sum;
        pthread_join(workers[i], &sum);
        printf("worker %d: %lx\n", i, (uint64_t)sum);
    }
    printf("visitors: %lx\n", visits);
    return 0;
}
