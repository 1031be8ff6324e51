// Puts other pages where memory is evicted, by a userfaultfd of its own and without a page fault: no real program does so,
// and to the pager it looks like its own mistake. mincore finds evicted memory.
#include "pages.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { MEMORY = 60, ROUNDS = 20 };

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
        // Not the first of a run: the pages behind a touched one come with it.
        for (size_t i = 1; i < MEMORY * MIB / PAGE; i++) {
            if (there[i] || there[i - 1]) continue;
            struct uffdio_copy copy = {.dst = (uintptr_t)memory + i * PAGE, .src = (uintptr_t)page, .len = PAGE};
            smuggled += ioctl(uffd, UFFDIO_COPY, &copy) == 0;
            i++;
        }
        check(memory, MEMORY * MIB, round);
    }
    printf("smuggled %zu pages and lives\n", smuggled);
    return 0;
}
