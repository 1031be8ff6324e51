// Two threads allocate, move, check and free blocks of all sizes; the first half of the blocks stays to the end.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 2, BLOCKS = 3000, ROUNDS = 6000 };

struct block {
    uint64_t *words, seed;
    size_t count;
};

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void fill(struct block *b, size_t from) {
    for (size_t i = from; i < b->count; i++) b->words[i] = i % 8 ? b->seed : b->seed * (2 * i + 1);
}

static size_t check(const struct block *b) {
    size_t wrong = 0;
    for (size_t i = 0; i < b->count; i++) wrong += b->words[i] != (i % 8 ? b->seed : b->seed * (2 * i + 1));
    return wrong;
}

static size_t size(uint64_t *state) {
    size_t words = 1 + next(state) % 4096;
    return next(state) % 100 ? words : words * 16;
}

static void *work(void *arg) {
    uint64_t state = 1000003u * (uintptr_t)arg;
    size_t wrong = 0;
    struct block *blocks = calloc(BLOCKS, sizeof *blocks);
    for (int i = 0; i < BLOCKS; i++) {
        struct block *b = &blocks[i];
        b->count = size(&state), b->seed = next(&state), b->words = malloc(b->count * 8);
        fill(b, 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        // Mostly the same blocks.
        size_t range = next(&state) % 8 ? BLOCKS / 8 : BLOCKS / 2;
        struct block *b = &blocks[BLOCKS - 1 - next(&state) % range];
        wrong += check(b);
        size_t old = b->count;
        b->count = size(&state);
        if (next(&state) % 2) {
            b->words = realloc(b->words, b->count * 8);
            if (b->count < old) old = b->count;
        } else {
            free(b->words);
            b->seed = next(&state), b->words = calloc(b->count, 8), old = 0;
            for (size_t i = 0; i < b->count; i++) wrong += b->words[i] != 0;
        }
        fill(b, old);
    }
    for (int i = 0; i < BLOCKS; i++) wrong += check(&blocks[i]), free(blocks[i].words);
    return (void *)wrong;
}

int main(void) {
    pthread_t threads[THREADS];
    size_t wrong = 0;
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++) {
        void *seen;
        pthread_join(threads[i], &seen);
        wrong += (size_t)seen;
    }
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
