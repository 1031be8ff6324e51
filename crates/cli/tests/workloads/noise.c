/* noise MIB PASSES MODE: pages of random bytes, verified at each touch and all at the end. MODE seq or rand; with a w they are
 * also rewritten, with a p it waits first until a part is evicted. */
#include "pages.h"

static uint64_t state = 88172645463325252ull;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static uint64_t noise_word(uint64_t page, uint64_t version, uint64_t i) {
    uint64_t z = (page * 1000003 + version) * 0x9e3779b97f4a7c15ull + i * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static void verify(const uint64_t *mem, uint64_t page, uint64_t version, int step) {
    for (int i = 0; i < 512; i += step)
        if (mem[page * 512 + i] != noise_word(page, version, i)) {
            printf("MISMATCH page %llu word %d\n", (unsigned long long)page, i);
            exit(3);
        }
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    uint64_t pages = strtoull(argv[1], 0, 10) * 256, passes = strtoull(argv[2], 0, 10);
    int random = argv[3][0] == 'r', writes = strchr(argv[3], 'w') != 0;
    uint64_t *mem = malloc(pages * 4096);
    uint8_t *versions = calloc(pages, 1);
    for (uint64_t p = 0; p < pages; p++)
        for (int i = 0; i < 512; i++) mem[p * 512 + i] = noise_word(p, 0, i);
    if (strchr(argv[3], 'p')) wait_until_paged(pages * 4096);
    for (uint64_t k = 0; k < passes * pages; k++) {
        uint64_t p = random ? draw() % pages : k % pages;
        verify(mem, p, versions[p], 31);
        if (writes && draw() & 1) {
            versions[p]++;
            for (int i = 0; i < 512; i++) mem[p * 512 + i] = noise_word(p, versions[p], i);
        }
    }
    for (uint64_t p = 0; p < pages; p++) verify(mem, p, versions[p], 1);
    puts("right");
    return 0;
}
