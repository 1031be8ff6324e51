/* queens N: all solutions of the problem of the N queens as one decision diagram (BDD): a hash table of nodes and one of results,
 * filled and walked at random. The number of solutions is known. */
#include "common.h"

/* As wide as those of the known packages, which also count references. */
struct node { uint32_t variable, low, high, next, references, mark, spare[2]; };
struct result { uint32_t a, b, value; };
enum { SLOTS = 1 << 20, RESULTS = 1 << 20 };

static struct node *nodes;
static struct result *results;
static uint32_t *slots, count = 2;
static uint64_t limit;

static uint32_t make(uint32_t variable, uint32_t low, uint32_t high) {
    if (low == high) return low;
    uint32_t *slot = &slots[mix64((uint64_t)low << 32 ^ high ^ (uint64_t)variable << 17) % SLOTS];
    for (uint32_t n = *slot; n; n = nodes[n].next)
        if (nodes[n].variable == variable && nodes[n].low == low && nodes[n].high == high) return n;
    if (count == limit) { fprintf(stderr, "no node is left\n"); exit(2); }
    nodes[count] = (struct node){.variable = variable, .low = low, .high = high, .next = *slot};
    nodes[low].references++;
    nodes[high].references++;
    return *slot = count++;
}

static uint32_t conjunction(uint32_t a, uint32_t b) {
    if (!a || !b) return 0;
    if (a == 1 || a == b) return b;
    if (b == 1) return a;
    if (a > b) { uint32_t t = a; a = b; b = t; }
    struct result *r = &results[mix64((uint64_t)a << 32 ^ b) % RESULTS];
    if (r->a == a && r->b == b) return r->value;
    uint32_t va = nodes[a].variable, vb = nodes[b].variable, v = va < vb ? va : vb;
    uint32_t low = conjunction(va == v ? nodes[a].low : a, vb == v ? nodes[b].low : b);
    uint32_t high = conjunction(va == v ? nodes[a].high : a, vb == v ? nodes[b].high : b);
    uint32_t value = make(v, low, high);
    *r = (struct result){a, b, value};
    return value;
}

static double solutions(uint32_t n, unsigned from, unsigned variables, double *known) {
    unsigned v = n < 2 ? variables : nodes[n].variable;
    double below = n < 2 ? n : known[n];
    if (n >= 2 && below < 0) {
        below = known[n] = solutions(nodes[n].low, v + 1, variables, known) + solutions(nodes[n].high, v + 1, variables, known);
    }
    for (; from < v; from++) below *= 2;
    return below;
}

int main(int argc, char **argv) {
    static const double right[] = {1, 1, 0, 0, 2, 10, 4, 40, 92, 352, 724};
    int n = arg_u64(argc, argv, 1, 8);
    if (n > 10) return 2;
    limit = arg_u64(argc, argv, 2, 64) << 16;
    nodes = (struct node *)pages_map(limit * sizeof *nodes / PAGE);
    slots = (uint32_t *)pages_map(SLOTS * sizeof *slots / PAGE);
    results = (struct result *)pages_map(RESULTS * sizeof *results / PAGE);
    double start = seconds();
    uint32_t all = 1;
    for (int row = 0; row < n; row++) {
        uint32_t some = 0;
        for (int column = n - 1; column >= 0; column--) some = make(row * n + column, some, 1);
        all = conjunction(all, some);
    }
    for (int q = 0; q < n * n; q++) {
        /* A queen here: none on any other square that it attacks. */
        uint32_t none = 1;
        for (int other = n * n - 1; other > q; other--) {
            int dy = other / n - q / n, dx = other % n - q % n;
            if (!dy || !dx || dx == dy || dx == -dy) none = make(other, none, 0);
        }
        all = conjunction(all, make(q, 1, none));
    }
    measured(start);
    double *known = malloc(count * sizeof *known);
    for (uint32_t i = 0; i < count; i++) known[i] = -1;
    double got = solutions(all, 0, n * n, known);
    if (got != right[n]) wrong("number of solutions", got);
    printf("nodes %u\n", count);
    return 0;
}
