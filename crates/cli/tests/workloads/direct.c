// Reads past the page cache (O_DIRECT) into memory that is evicted at the same time: into evicted pages, into parts of pages,
// and from two threads. Each byte is checked.
#include "pages.h"

enum { FILE_BYTES = 8 << 20, BYTES = 32 << 20, READS = 600, SECTOR = 512 };

static int file;
static volatile int done;

// Keeps the pager busy.
static void *churn(void *arg) {
    uint64_t *p = arg;
    size_t wrong = 0;
    for (uint64_t seed = 1; !done; seed++) {
        fill(p, BYTES, seed);
        wrong += check(p, BYTES, seed);
    }
    return (void *)wrong;
}

// Reads pieces of the file into memory whose other bytes must stay as they were.
static void *reads(void *arg) {
    char *memory = arg;
    uint64_t state = (uintptr_t)arg | 1;
    size_t wrong = 0, unit = SECTOR;
    for (int i = 0; i < READS; i++) {
        size_t bytes = unit * (1 + next(&state) % (i % 8 ? 16 : 256));
        size_t from = next(&state) % ((FILE_BYTES - bytes) / unit) * unit;
        size_t to = next(&state) % ((BYTES / 2 - bytes) / unit) * unit;
        ssize_t got = pread(file, memory + to, bytes, from);
        if (got < 0 && errno == EINVAL && unit == SECTOR) {
            // A disk with larger sectors.
            unit = PAGE;
            continue;
        }
        if (got != (ssize_t)bytes) {
            wrong++;
            continue;
        }
        for (size_t k = 0; k < bytes / 8; k++) wrong += ((uint64_t *)(memory + to))[k] != word(7, from / 8 + k);
        // Restores the contents: if a read wrote too much, the bytes around it show that.
        for (size_t k = 0; k < bytes / 8; k++) ((uint64_t *)(memory + to))[k] = word(3, to / 8 + k);
    }
    return (void *)(wrong + check(arg, BYTES / 2, 3));
}

int main(void) {
    uint64_t *contents = map(FILE_BYTES);
    fill(contents, FILE_BYTES, 7);
    int out = open("direct.data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(out);
    if (write(out, contents, FILE_BYTES) != FILE_BYTES || fsync(out)) return 2;
    munmap(contents, FILE_BYTES);
    file = open("direct.data", O_RDONLY | O_DIRECT);
    if (file < 0) return REFUSED;
    char *memory = (char *)map(BYTES);
    for (int half = 0; half < 2; half++) fill((uint64_t *)(memory + half * (BYTES / 2)), BYTES / 2, 3);
    uint64_t *other = map(BYTES);
    pthread_t threads[3];
    pthread_create(&threads[0], NULL, churn, other);
    for (int i = 0; i < 2; i++) pthread_create(&threads[1 + i], NULL, reads, memory + i * (BYTES / 2));
    size_t wrong = 0;
    for (int i = 2; i >= 0; i--) {
        void *seen;
        pthread_join(threads[i], &seen);
        wrong += (size_t)seen;
        if (i == 1) done = 1;
    }
    printf("wrong: %zu\n", wrong);
    unlink("direct.data");
    return wrong != 0;
}
