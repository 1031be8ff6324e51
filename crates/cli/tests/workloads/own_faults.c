// A program that serves page faults of its own: a thread of it fills two ranges, one registered before it uses much memory,
// the other one late ("late" given). Their neighbours are ordinary memory.
#include "pages.h"
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { OWN = 4, OTHER = 60, ROUNDS = 3 };

static int uffd;
static struct range {
    uint64_t *p, seed;
} ranges[2];

static void *serve(void *arg) {
    static uint64_t page[PAGE / 8];
    for (;;) {
        struct uffd_msg msg;
        if (read(uffd, &msg, sizeof msg) != sizeof msg || msg.event != UFFD_EVENT_PAGEFAULT) exit(4);
        uintptr_t at = msg.arg.pagefault.address & ~(PAGE - 1);
        int which = at - (uintptr_t)ranges[0].p >= OWN * MIB;
        size_t first = (at - (uintptr_t)ranges[which].p) / 8;
        for (size_t i = 0; i < PAGE / 8; i++) page[i] = word(ranges[which].seed, first + i);
        struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)page, .len = PAGE};
        if (ioctl(uffd, UFFDIO_COPY, &copy) && errno != EEXIST) exit(5);
    }
    return arg;
}

static void take_over(int which, uint64_t seed) {
    ranges[which] = (struct range){map(OWN * MIB), seed};
    struct uffdio_register mine = {
        .range = {(uintptr_t)ranges[which].p, OWN * MIB}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    MUST(ioctl(uffd, UFFDIO_REGISTER, &mine));
}

int main(int argc, char **argv) {
    uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
    if (uffd < 0) return REFUSED;
    struct uffdio_api api = {.api = UFFD_API};
    MUST(ioctl(uffd, UFFDIO_API, &api));
    take_over(0, 100);
    pthread_t thread;
    pthread_create(&thread, NULL, serve, NULL);
    size_t wrong = check(ranges[0].p, OWN * MIB / 2, 100);
    uint64_t *other = map(OTHER * MIB);
    fill(other, OTHER * MIB, 1);
    if (argc > 1) {
        take_over(1, 200);
        wrong += check(ranges[1].p, OWN * MIB, 200);
    }
    for (int round = 0; round < ROUNDS; round++) {
        // Freed pages fault a second time.
        MUST(madvise(ranges[0].p, OWN * MIB / 4, MADV_DONTNEED));
        wrong += check(ranges[0].p, OWN * MIB, 100) + check(other, OTHER * MIB, 1);
        if (argc > 1) wrong += check(ranges[1].p, OWN * MIB, 200);
    }
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
