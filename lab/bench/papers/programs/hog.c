/* hog MIB word|mix: allocates and touches each page; one word a page, or 4 pages of 10 at f = 0.2, 4 at 0.5, 2 at 1. */
#include "common.h"

static unsigned permille_of(uint64_t page) {
    unsigned x = mix64(page) % 10;
    return x < 4 ? 200 : x < 8 ? 500 : 1000;
}

int main(int argc, char **argv) {
    uint64_t pages = arg_u64(argc, argv, 1, 94) * 256;
    int mix = argc > 2 && strcmp(argv[2], "mix") == 0;
    double start = seconds();
    unsigned char *mem = pages_map(pages);
    for (uint64_t p = 0; p < pages; p++)
        if (mix) interleaved_make(mem + p * PAGE, p, 0, permille_of(p)); else *(uint64_t *)(mem + p * PAGE) = mix64(p);
    measured(start);
    sample("filled");
    for (uint64_t p = 0; p < pages; p++)
        if (mix) interleaved_check(mem + p * PAGE, p, 0, permille_of(p));
        else if (*(uint64_t *)(mem + p * PAGE) != mix64(p)) wrong("page", p);
    return 0;
}
