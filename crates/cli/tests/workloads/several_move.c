// A thread moves memory of several mappings by one mremap (Linux 6.17), again and again, while others map, fill and
// compare memory of their own. The kernel gives their mappings the places that become free.
#include "pages.h"
#include <sched.h>
#include <sys/utsname.h>

#define KEPT (40 * MIB)
enum { OTHERS = 3, ROUNDS = 1000, PAGES = 48, LEAST = 8 };

static volatile int moving = 1;

static void *others(void *number) {
    size_t wrong = 0;
    uint64_t seed = (uintptr_t)number * 1000;
    while (moving) {
        size_t bytes = (LEAST + seed % PAGES) * PAGE;
        // MAP_POPULATE: memfit leaves the address to the kernel.
        uint64_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (p == MAP_FAILED) continue;
        fill(p, bytes, ++seed);
        sched_yield();
        wrong += check(p, bytes, seed);
        munmap(p, bytes);
    }
    return (void *)wrong;
}

static int moves_several(void) {
    struct utsname names;
    int major = 0, minor = 0;
    MUST(uname(&names));
    sscanf(names.release, "%d.%d", &major, &minor);
    return major > 6 || (major == 6 && minor >= 17);
}

int main(void) {
    uint64_t *kept = map(KEPT);
    fill(kept, KEPT, 1);
    wait_until_paged(KEPT);
    int plain = MAP_PRIVATE | MAP_ANONYMOUS;
    char *to = mmap(NULL, 4 * PAGES * PAGE, PROT_NONE, plain, -1, 0);
    MUST((intptr_t)to);
    pthread_t threads[OTHERS];
    start_threads(threads, OTHERS, others, 1);
    size_t wrong = 0, moved = 0;
    // Before Linux 6.17 only one mapping moves at a time, and memfit's are not those of the program.
    int several = moves_several();
    for (uint64_t round = 0; round < ROUNDS; round++) {
        char *from = mmap(NULL, 4 * PAGES * PAGE, PROT_READ | PROT_WRITE, plain, -1, 0);
        MUST((intptr_t)from);
        // Mappings that memfit has not found yet, before and behind those that it has.
        for (uint64_t part = round % 2; part < 4; part += 2)
            MUST((intptr_t)mmap(from + part * PAGES * PAGE, PAGES * PAGE, PROT_READ | PROT_WRITE, plain | MAP_FIXED, -1, 0));
        fill((uint64_t *)from, 4 * PAGES * PAGE, round);
        int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
        if (mremap(from, 4 * PAGES * PAGE, 4 * PAGES * PAGE, flags, to) == to) {
            wrong += check((uint64_t *)to, 4 * PAGES * PAGE, round);
            moved++;
        } else {
            wrong += errno != EFAULT;
            munmap(from, 4 * PAGES * PAGE);
        }
    }
    moving = 0;
    wrong += join_threads(threads, OTHERS) + check(kept, KEPT, 1);
    wrong += several && moved != ROUNDS;
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
