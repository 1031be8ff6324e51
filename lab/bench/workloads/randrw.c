/* randrw MIB OPS [THREADS [WRITE_PCT [SEED]]]
 * Fill, then OPS random page operations: verify the whole page and, for
 * WRITE_PCT of them, write its next version. At the end verify everything.
 * Thread t owns the pages p with p % THREADS == t, so the result is fixed. */
#include "pages.h"
#include <pthread.h>

static unsigned char *mem;
static uint32_t *versions;
static uint64_t pages, ops, threads, write_pct, seed;

struct part { pthread_t id; uint64_t t, sum; };

static void *work(void *arg) {
    struct part *me = arg;
    uint64_t own = (pages - me->t + threads - 1) / threads;
    uint64_t n = ops / threads + (me->t < ops % threads), s = mix64(seed ^ (me->t << 48));
    for (uint64_t i = 0; i < n; i++) {
        s = mix64(s);
        uint64_t p = ((s >> 20) % own) * threads + me->t;
        me->sum += page_check(mem + p * PAGE, p, versions[p]) * (i | 1);
        if (s % 100 < write_pct) page_store(mem + p * PAGE, p, ++versions[p]);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pages = arg_u64(argc, argv, 1, 400) * 256;
    ops = arg_u64(argc, argv, 2, 1000000);
    threads = arg_u64(argc, argv, 3, 1);
    write_pct = arg_u64(argc, argv, 4, 100);
    seed = arg_u64(argc, argv, 5, 1);
    if (!threads || threads > 64 || pages < threads) { fprintf(stderr, "bad arguments\n"); return 2; }
    mem = pages_map(pages);
    versions = calloc(pages, sizeof *versions);
    struct part part[64] = {0};
    for (uint64_t p = 0; p < pages; p++) page_store(mem + p * PAGE, p, 0);
    for (uint64_t t = 1; t < threads; t++) {
        part[t].t = t;
        if (pthread_create(&part[t].id, NULL, work, &part[t])) { perror("pthread_create"); return 1; }
    }
    work(&part[0]);
    uint64_t sum = part[0].sum;
    for (uint64_t t = 1; t < threads; t++) { pthread_join(part[t].id, NULL); sum += mix64(part[t].sum + t); }
    for (uint64_t p = 0; p < pages; p++) sum = mix64(sum ^ page_check(mem + p * PAGE, p, versions[p]));
    printf("randrw %016llx\n", (unsigned long long)sum);
    return 0;
}
