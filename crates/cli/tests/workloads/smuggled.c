// Puts other pages where memory is evicted, by a userfaultfd of its own and without a page fault: no real program does so,
// and to the pager it looks like its own mistake. mincore finds evicted memory.
#include "pages.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { MEMORY = 60, ROUNDS = 20, APART = 37 };

int main(void) {
    int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (uffd < 0) return REFUSED;
    struct uffdio_api api = {.api = UFFD_API};
    MUST(ioctl(uffd, UFFDIO_API, &api));
    uint64_t *memory = map(MEMORY * MIB);
    static unsigned char there[MEMORY * MIB / PAGE];
    static char page[PAGE];
    size_t smuggled = 0;
    for (int round = 0; round < ROUNDS; round++) {
        fill(memory, MEMORY * MIB, round);
        MUST(mincore(memory, MEMORY * MIB, there));
        // The first touch after such a page faults on the page behind it. Only fault-around meets the page itself, so
        // there are enough pages between two of them for the reader's window to grow.
        size_t evicted = 0;
        for (size_t i = 0; i < MEMORY * MIB / PAGE; i++) {
            evicted = there[i] ? 0 : evicted + 1;
            if (evicted != APART) continue;
            struct uffdio_copy copy = {.dst = (uintptr_t)memory + i * PAGE, .src = (uintptr_t)page, .len = PAGE};
            smuggled += ioctl(uffd, UFFDIO_COPY, &copy) == 0;
            evicted = 0;
        }
        check(memory, MEMORY * MIB, round);
    }
    printf("smuggled %zu pages and lives\n", smuggled);
    return 0;
}
