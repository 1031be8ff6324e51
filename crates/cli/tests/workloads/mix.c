/* mix MIB PASSES [seq|rand]: pages of which a part of each 64 bytes is random (1/20 to all of it, by page), verified at each
 * touch and all at the end. Half of those that are touched at random are changed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252ull;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* Bytes of 64 that are random. */
static int part(uint64_t page) {
    static const int parts[8] = {0, 3, 6, 13, 18, 26, 42, 64};
    return parts[page * 2654435761u >> 7 & 7];
}

static uint8_t byte(uint64_t page, uint64_t version, int i) {
    uint64_t z = (page * 1000003 + version) * 0x9e3779b97f4a7c15ull + (i / 8) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (z ^ (z >> 31)) >> (i % 8 * 8);
}

static void fill(uint8_t *at, uint64_t page, uint64_t version) {
    int random = part(page);
    for (int i = 0; i < 4096; i++) at[i] = i % 64 < random ? byte(page, version, i) : 0;
}

static void check(const uint8_t *at, uint64_t page, uint64_t version, int step) {
    int random = part(page);
    for (int i = 0; i < 4096; i += step)
        if (at[i] != (i % 64 < random ? byte(page, version, i) : 0)) {
            printf("MISMATCH page %llu byte %d\n", (unsigned long long)page, i);
            exit(3);
        }
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    uint64_t pages = strtoull(argv[1], 0, 10) * 256, passes = strtoull(argv[2], 0, 10);
    int random = argc > 3 && argv[3][0] == 'r';
    uint8_t *mem = malloc(pages * 4096), *versions = calloc(pages, 1);
    for (uint64_t p = 0; p < pages; p++) fill(mem + p * 4096, p, 0);
    for (uint64_t k = 0; k < passes * pages; k++) {
        uint64_t p = random ? draw() % pages : k % pages;
        check(mem + p * 4096, p, versions[p], 61);
        if (random && draw() & 1) fill(mem + p * 4096, p, ++versions[p]);
    }
    for (uint64_t p = 0; p < pages; p++) check(mem + p * 4096, p, versions[p], 1);
    puts("right");
    return 0;
}
