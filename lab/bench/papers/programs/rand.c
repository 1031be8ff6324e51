/* rand MIB ACCESSES PERMILLE: pages uniformly at random, every second one written. */
#include "common.h"

int main(int argc, char **argv) {
    uint64_t pages = arg_u64(argc, argv, 1, 77) * 256, accesses = arg_u64(argc, argv, 2, 12500), s = 1;
    unsigned permille = arg_u64(argc, argv, 3, 400);
    unsigned char *mem = pages_map(pages);
    uint32_t *versions = calloc(pages, sizeof *versions);
    interleaved_warm(mem, versions, pages, permille);
    double start = seconds();
    for (uint64_t i = 0; i < accesses; i++) {
        s = mix64(s);
        uint64_t p = (s >> 20) % pages;
        interleaved_check(mem + p * PAGE, p, versions[p], permille);
        if (s & 1) interleaved_make(mem + p * PAGE, p, ++versions[p], permille);
    }
    measured(start);
    for (uint64_t p = 0; p < pages; p++) interleaved_check(mem + p * PAGE, p, versions[p], permille);
    return 0;
}
