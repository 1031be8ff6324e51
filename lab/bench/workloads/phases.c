/* phases MIB PHASES OPS [SET_PCT [AWAY_PCT]]
 * Fill, then PHASES phases of OPS random page operations each: verify the whole
 * page and write its next version. A phase has SET_PCT of the pages to itself;
 * AWAY_PCT of its operations go to any page. At the end verify everything. */
#include "pages.h"

int main(int argc, char **argv) {
    uint64_t pages = arg_u64(argc, argv, 1, 400) * 256, phases = arg_u64(argc, argv, 2, 4);
    uint64_t ops = arg_u64(argc, argv, 3, 400000), set_pct = arg_u64(argc, argv, 4, 25), away = arg_u64(argc, argv, 5, 1);
    uint64_t set = pages * set_pct / 100, s = 1, sum = 0;
    if (!set || set > pages || !phases) { fprintf(stderr, "bad arguments\n"); return 2; }
    unsigned char *mem = pages_map(pages);
    uint32_t *versions = calloc(pages, sizeof *versions);
    for (uint64_t p = 0; p < pages; p++) page_store(mem + p * PAGE, p, 0);
    for (uint64_t k = 0; k < phases; k++) {
        for (uint64_t i = 0; i < ops; i++) {
            s = mix64(s);
            uint64_t p = s % 100 < away ? (s >> 20) % pages : (k * set + (s >> 20) % set) % pages;
            sum += page_check(mem + p * PAGE, p, versions[p]) * (i | 1);
            page_store(mem + p * PAGE, p, ++versions[p]);
        }
    }
    for (uint64_t p = 0; p < pages; p++) sum = mix64(sum ^ page_check(mem + p * PAGE, p, versions[p]));
    printf("phases %016llx\n", (unsigned long long)sum);
    return 0;
}
