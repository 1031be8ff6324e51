/* nodes MIB ACCESSES HOT_PERMILLE WORK PERMILLE: a small working set in a large footprint, as in a network simulator whose
 * nodes set the footprint and whose connections the working set: of 100 accesses 95 go to the hot part. After each access
 * WORK rounds of arithmetic, which stand for the handling of an event. */
#include "common.h"

int main(int argc, char **argv) {
    uint64_t pages = arg_u64(argc, argv, 1, 55) * 256, accesses = arg_u64(argc, argv, 2, 40000), s = 1, sum = 0;
    uint64_t hot = pages * arg_u64(argc, argv, 3, 150) / 1000, work = arg_u64(argc, argv, 4, 5000);
    unsigned permille = arg_u64(argc, argv, 5, 125);
    unsigned char *mem = pages_map(pages);
    uint32_t *versions = calloc(pages, sizeof *versions);
    if (!hot) hot = 1;
    interleaved_warm(mem, versions, pages, permille);
    double start = seconds();
    for (uint64_t i = 0; i < accesses; i++) {
        s = mix64(s);
        /* The hot pages lie all over the footprint, as those of nodes with a connection do. */
        uint64_t p = s % 100 < 95 ? (s >> 20) % hot * pages / hot : (s >> 20) % pages;
        interleaved_check(mem + p * PAGE, p, versions[p], permille);
        if (s >> 19 & 1) interleaved_make(mem + p * PAGE, p, ++versions[p], permille);
        for (uint64_t k = 0; k < work; k++) sum = mix64(sum + k);
    }
    measured(start);
    for (uint64_t p = 0; p < pages; p++) interleaved_check(mem + p * PAGE, p, versions[p], permille);
    printf("sum %llx\n", (unsigned long long)sum);
    return 0;
}
