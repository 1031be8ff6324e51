/* thrasher MIB CYCLES PERMILLE: a linear cycle over all pages, each read and written. */
#include "common.h"

int main(int argc, char **argv) {
    uint64_t pages = arg_u64(argc, argv, 1, 77) * 256, cycles = arg_u64(argc, argv, 2, 3);
    unsigned permille = arg_u64(argc, argv, 3, 400);
    unsigned char *mem = pages_map(pages);
    for (uint64_t p = 0; p < pages; p++) interleaved_make(mem + p * PAGE, p, 0, permille);
    double start = seconds();
    for (uint64_t c = 0; c < cycles; c++)
        for (uint64_t p = 0; p < pages; p++) {
            interleaved_check(mem + p * PAGE, p, c, permille);
            interleaved_make(mem + p * PAGE, p, c + 1, permille);
        }
    measured(start);
    for (uint64_t p = 0; p < pages; p++) interleaved_check(mem + p * PAGE, p, cycles, permille);
    return 0;
}
