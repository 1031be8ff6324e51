/* traffic MIB MOVES: a queue model of road traffic. Agents of 256 bytes, about 24 of them in use, wait in the queues of the
 * links of a grid; each move takes the first of a queue to another link. The moves are shared among all agents: the working
 * set is the footprint. */
#include "common.h"

struct agent { uint32_t next, link, left_at, moves; uint32_t check, passes; unsigned char plan[232]; };
_Static_assert(sizeof(struct agent) == 256, "16 agents a page");
enum { LINKS = 1 << 12 };

static struct agent *agents;
static uint32_t head[LINKS], tail[LINKS];

static uint32_t check_of(uint32_t id, const struct agent *a) {
    return (uint32_t)mix64((uint64_t)id << 32 ^ a->moves ^ (uint64_t)a->link << 20) & 0xffff;
}

static void enter(uint32_t id, uint32_t link, uint32_t now) {
    struct agent *a = &agents[id];
    a->link = link;
    a->left_at = now;
    a->check = check_of(id, a);
    a->next = 0;
    if (tail[link]) agents[tail[link] - 1].next = id + 1; else head[link] = id + 1;
    tail[link] = id + 1;
}

static uint32_t leave(uint32_t link) {
    uint32_t id = head[link] - 1;
    struct agent *a = &agents[id];
    if (a->link != link || a->check != check_of(id, a)) wrong("agent", id);
    head[link] = a->next;
    if (!head[link]) tail[link] = 0;
    return id;
}

static uint32_t divisor(uint32_t a, uint32_t b) {
    while (b) { uint32_t t = a % b; a = b; b = t; }
    return a;
}

/* Of a modulo m, which have no common divisor. */
static uint64_t inverse_of(int64_t a, int64_t m) {
    int64_t x = 0, y = 1, n = m;
    while (a > 1) { int64_t q = a / m, t = m; m = a % m; a = t; t = x; x = y - q * x; y = t; }
    return y < 0 ? y + n : y;
}

int main(int argc, char **argv) {
    uint64_t pages = arg_u64(argc, argv, 1, 83) * 256, moves = arg_u64(argc, argv, 2, 100000), s = 1, seen = 0;
    uint32_t count = pages * 16, step = 2654435761u % count | 1;
    agents = (struct agent *)pages_map(pages);
    /* In the order of memory, but linked in an order of departure that has nothing to do with it: the i-th to depart is agent
     * i * step, and starts at link i. */
    while (divisor(step, count) != 1) step += 2;
    uint64_t inverse = inverse_of(step, count);
    for (uint32_t id = 0; id < count; id++) {
        uint64_t i = id * inverse % count;
        struct agent *a = &agents[id];
        a->link = i % LINKS;
        a->check = check_of(id, a);
        a->next = i + LINKS < count ? (i + LINKS) * step % count + 1 : 0;
        if (i < LINKS) head[a->link] = id + 1;
        if (!a->next) tail[a->link] = id + 1;
    }
    for (int pass = 0; pass < WARM_PASSES; pass++)
        for (uint32_t id = 0; id < count; id++)
            if (agents[id].passes++ != (uint32_t)pass) wrong("agent's passes", id);
    double start = seconds();
    for (uint64_t i = 0; i < moves;) {
        s = mix64(s);
        uint32_t link = s % LINKS;
        if (!head[link]) continue;
        uint32_t id = leave(link);
        agents[id].moves++;
        enter(id, (link + (s >> 40 & 1 ? 1 : 64)) % LINKS, ++i);
    }
    measured(start);
    for (uint32_t id = 0; id < count; id++) {
        if (agents[id].check != check_of(id, &agents[id])) wrong("agent", id);
        if (agents[id].passes != WARM_PASSES) wrong("agent's passes", id);
        seen += agents[id].moves;
    }
    if (seen != moves) wrong("moves of all agents", seen);
    return 0;
}
