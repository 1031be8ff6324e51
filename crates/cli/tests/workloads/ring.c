// io_uring, by bare system calls: buffers that are registered before and after their memory was evicted, fixed reads past the
// page cache into them, and plain reads into memory that is evicted meanwhile.
#include "pages.h"
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { ENTRIES = 8, CHUNK = 64 << 10, FILE_BYTES = 4 << 20, BUFFER = 2 << 20, OTHER = 56 << 20, ROUNDS = 2 };

static int ring, file;
static char *sq, *cq;
static struct io_uring_sqe *sqes;
static struct io_uring_params params;

static int start(void) {
    ring = syscall(SYS_io_uring_setup, ENTRIES, &params);
    if (ring < 0) return 0;
    size_t sq_bytes = params.sq_off.array + params.sq_entries * 4;
    size_t cq_bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    sq = mmap(NULL, sq_bytes, prot, flags, ring, IORING_OFF_SQ_RING);
    cq = mmap(NULL, cq_bytes, prot, flags, ring, IORING_OFF_CQ_RING);
    sqes = mmap(NULL, params.sq_entries * sizeof *sqes, prot, flags, ring, IORING_OFF_SQES);
    return sq != MAP_FAILED && cq != MAP_FAILED && sqes != MAP_FAILED;
}

// One read; waits for it. `index` is that of a registered buffer, or -1.
static int read_at(void *to, unsigned bytes, uint64_t from, int index) {
    _Atomic unsigned *tail = (_Atomic unsigned *)(sq + params.sq_off.tail);
    unsigned mask = *(unsigned *)(sq + params.sq_off.ring_mask), at = *tail & mask;
    sqes[at] = (struct io_uring_sqe){.opcode = index < 0 ? IORING_OP_READ : IORING_OP_READ_FIXED,
                                     .fd = file,
                                     .addr = (uintptr_t)to,
                                     .len = bytes,
                                     .off = from,
                                     .buf_index = index < 0 ? 0 : index};
    ((unsigned *)(sq + params.sq_off.array))[at] = at;
    atomic_fetch_add(tail, 1);
    int entered;
    do entered = syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    while (entered < 0 && errno == EINTR);
    MUST(entered);
    _Atomic unsigned *head = (_Atomic unsigned *)(cq + params.cq_off.head);
    while (*(_Atomic unsigned *)(cq + params.cq_off.tail) == *head)
        syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    struct io_uring_cqe *cqes = (void *)(cq + params.cq_off.cqes);
    int result = cqes[*head & *(unsigned *)(cq + params.cq_off.ring_mask)].res;
    atomic_fetch_add(head, 1);
    return result;
}

// Reads the file into memory in chunks, checks the memory and refills it.
static size_t read_all(char *memory, size_t bytes, int index) {
    size_t wrong = 0;
    for (size_t at = 0; at + CHUNK <= bytes; at += CHUNK) {
        size_t from = at * 5 % (FILE_BYTES - CHUNK) / PAGE * PAGE;
        int got = read_at(memory + at, CHUNK, from, index);
        if (got != CHUNK) {
            printf("read: %d\n", got);
            return 1;
        }
        for (size_t k = 0; k < CHUNK / 8; k++) wrong += ((uint64_t *)(memory + at))[k] != word(7, from / 8 + k);
    }
    fill((uint64_t *)memory, bytes, 3);
    return wrong;
}

static void make_file(void) {
    uint64_t *contents = map(FILE_BYTES);
    fill(contents, FILE_BYTES, 7);
    int out = open("ring.data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(out);
    if (write(out, contents, FILE_BYTES) != FILE_BYTES || fsync(out)) exit(2);
    munmap(contents, FILE_BYTES);
}

int main(void) {
    if (!start()) return REFUSED;
    make_file();
    file = open("ring.data", O_RDONLY | O_DIRECT);
    if (file < 0) return REFUSED;
    char *buffers[2] = {(char *)map(BUFFER), (char *)map(BUFFER)}, *other = (char *)map(OTHER);
    size_t wrong = 0;
    for (int late = 0; late < 2; late++) {
        fill((uint64_t *)buffers[0], BUFFER, 3);
        fill((uint64_t *)buffers[1], BUFFER, 3);
        if (late) fill((uint64_t *)other, OTHER, 1);
        struct iovec both[2] = {{buffers[0], BUFFER}, {buffers[1], BUFFER}};
        if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, both, 2)) return REFUSED;
        if (!late) fill((uint64_t *)other, OTHER, 1);
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i < 2; i++) wrong += read_all(buffers[i], BUFFER, i);
            wrong += check((uint64_t *)other, OTHER, 1);
            for (int i = 0; i < 2; i++) wrong += check((uint64_t *)buffers[i], BUFFER, 3);
        }
        MUST(syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0));
        // Into memory that nothing pins.
        wrong += read_all(other, OTHER / 4, -1);
        wrong += check((uint64_t *)other, OTHER / 4, 3);
        fill((uint64_t *)other, OTHER / 4, 1);
        wrong += check((uint64_t *)other, OTHER, 1);
    }
    unlink("ring.data");
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
