/* simulator MIB PENDING_PERMILLE EVENTS: an event-driven simulator of 64 disks. Records of 512 bytes, mostly zero; the
 * library keeps freed ones, zeroed, in queues, and takes the one freed longest ago: so all of the memory is in use though
 * only PENDING_PERMILLE of the records wait at a time. */
#include "common.h"

#define EVENT_BYTES 512u
struct event { uint64_t time; uint32_t disk, request; uint64_t block; uint32_t kind, check; };
struct entry { uint64_t time; uint32_t record; };

static unsigned char *mem;
static struct entry *heap;
static uint32_t *queue;
static uint64_t waiting, records, first, freed;

static uint32_t check_of(const struct event *e) {
    return (uint32_t)mix64(e->time ^ e->block << 7 ^ (uint64_t)e->disk << 50 ^ (uint64_t)e->request << 20 ^ e->kind);
}

static struct event *at(uint32_t record) { return (struct event *)(mem + (uint64_t)record * EVENT_BYTES); }

static void push(struct entry e) {
    uint64_t i = waiting++;
    while (i && heap[(i - 1) / 2].time > e.time) { heap[i] = heap[(i - 1) / 2]; i = (i - 1) / 2; }
    heap[i] = e;
}

static struct entry pop(void) {
    struct entry top = heap[0], last = heap[--waiting];
    uint64_t i = 0;
    for (uint64_t child; (child = 2 * i + 1) < waiting; i = child) {
        if (child + 1 < waiting && heap[child + 1].time < heap[child].time) child++;
        if (heap[child].time >= last.time) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

static void schedule(uint64_t now, uint64_t *seed) {
    uint32_t record = queue[first];
    first = (first + 1) % records;
    freed--;
    struct event *e = at(record);
    uint64_t x = *seed = mix64(*seed);
    for (unsigned i = 0; i < EVENT_BYTES / 8; i++) if (((uint64_t *)e)[i]) wrong("record not zero", record);
    e->time = now + 1 + x % (4 * records);
    e->disk = x >> 30 & 63;
    e->request = x >> 40 & 0xffff;
    e->block = x >> 16 & 0xfffff;
    e->kind = 1 + (x >> 60 & 3);
    e->check = check_of(e);
    push((struct entry){e->time, record});
}

static void finish(struct entry done) {
    struct event *e = at(done.record);
    if (e->time != done.time || e->check != check_of(e)) wrong("record", done.record);
    memset(e, 0, sizeof *e);
    queue[(first + freed++) % records] = done.record;
}

int main(int argc, char **argv) {
    uint64_t pages = arg_u64(argc, argv, 1, 60) * 256, events = arg_u64(argc, argv, 3, 100000), seed = 1;
    records = pages * (PAGE / EVENT_BYTES);
    uint64_t pending = records * arg_u64(argc, argv, 2, 950) / 1000;
    mem = pages_map(pages);
    heap = calloc(records, sizeof *heap);
    queue = calloc(records, sizeof *queue);
    for (uint64_t i = 0; i < records; i++) { queue[i] = i; memset(at(i), 0, EVENT_BYTES); }
    freed = records;
    double start = seconds();
    while (waiting < pending) schedule(0, &seed);
    for (uint64_t i = 0; i < events; i++) {
        struct entry done = pop();
        finish(done);
        schedule(done.time, &seed);
    }
    measured(start);
    /* In the order of memory: in that of time, each page would come in many times. */
    uint64_t live = 0;
    for (uint64_t i = 0; i < records; i++) {
        struct event *e = at(i);
        if (e->time && ++live && e->check != check_of(e)) wrong("record", i);
    }
    if (live != waiting) wrong("records that wait", live);
    return 0;
}
