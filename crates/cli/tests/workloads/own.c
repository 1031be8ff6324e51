// Registers memory that it has used for long with a userfaultfd of its own, frees half of it, and fills what is touched there
// itself. The argument says how it calls ioctl: by libc's function ("libc"), or by syscall().
#include "pages.h"
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { SERVED = 16, WORKED_ON = 48, ROUND = 77 };
static int by_libc, uffd;

static long control(unsigned long request, void *argument) {
    return by_libc ? ioctl(uffd, request, argument) : syscall(SYS_ioctl, uffd, request, argument);
}

static void *serve(void *at) {
    struct uffd_msg message;
    static uint64_t page[512] __attribute__((aligned(4096)));
    while (read(uffd, &message, sizeof message) == sizeof message) {
        uint64_t address = message.arg.pagefault.address & ~4095ul;
        for (int i = 0; i < 512; i++) page[i] = address + i;
        struct uffdio_copy copy = {.dst = address, .src = (uint64_t)page, .len = 4096};
        MUST(control(UFFDIO_COPY, &copy));
    }
    return at;
}

int main(int argc, char **argv) {
    by_libc = !strcmp(argv[1], "libc");
    uint64_t *served = map(SERVED * MIB), *other = map(WORKED_ON * MIB);
    size_t wrong = 0, half = SERVED * MIB / 2;
    fill(served, SERVED * MIB, ROUND);
    fill(other, WORKED_ON * MIB, 1);
    wait_until_paged((SERVED + WORKED_ON) * MIB);
    uffd = syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY);
    if (uffd < 0) return REFUSED;
    struct uffdio_api api = {.api = UFFD_API};
    MUST(control(UFFDIO_API, &api));
    struct uffdio_register range = {.range = {(uint64_t)served, SERVED * MIB}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    MUST(control(UFFDIO_REGISTER, &range));
    wrong += check(served, SERVED * MIB, ROUND);
    MUST(madvise((char *)served + half, half, MADV_DONTNEED));
    pthread_t server;
    pthread_create(&server, NULL, serve, NULL);
    for (int round = 2; round < 5; round++) {
        wrong += check(other, WORKED_ON * MIB, round - 1);
        fill(other, WORKED_ON * MIB, round);
        for (uint64_t *at = served + half / 8; at < served + SERVED * MIB / 8; at += 512)
            wrong += at[0] != (uint64_t)at || at[511] != (uint64_t)at + 511;
        wrong += check(served, half, ROUND);
    }
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
