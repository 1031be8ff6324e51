/* sweep MIB PASSES: fill in order, then PASSES sequential passes over all of
 * it: odd ones verify, even ones verify and write the next version. */
#include "pages.h"

int main(int argc, char **argv) {
    uint64_t pages = arg_u64(argc, argv, 1, 400) * 256, passes = arg_u64(argc, argv, 2, 8);
    unsigned char *mem = pages_map(pages);
    uint64_t version = 0, sum = 0;
    for (uint64_t p = 0; p < pages; p++) page_store(mem + p * PAGE, p, version);
    for (uint64_t k = 1; k <= passes; k++) {
        for (uint64_t p = 0; p < pages; p++) {
            sum = mix64(sum ^ page_check(mem + p * PAGE, p, version));
            if (k % 2 == 0) page_store(mem + p * PAGE, p, version + 1);
        }
        version += k % 2 == 0;
    }
    printf("sweep %016llx\n", (unsigned long long)sum);
    return 0;
}
