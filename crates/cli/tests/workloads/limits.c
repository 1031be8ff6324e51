// Limits that a program sets for itself when much of its memory is evicted: it then maps and fills within them, and is
// refused beyond them, as without memfit. Arguments: none, or "outer" where the limits are set already.
#include "pages.h"
#include <sys/resource.h>
#include <sys/syscall.h>

enum { BYTES = 56 * (1 << 20), FIRST = 44 * (1 << 20), STEP = 1 << 20, STEPS = 8 };

static void limit(int resource, rlim_t value) {
    struct rlimit old, set = {value, value};
    MUST(prlimit(0, resource, &set, &old));
    MUST(prlimit(getpid(), resource, NULL, &old));
    if (old.rlim_cur != value) exit(3);
}

int main(int argc, char **argv) {
    // Descriptors that the starter left open do not matter here.
    MUST(syscall(SYS_close_range, 3, ~0U, 0));
    uint64_t *p = map(BYTES), *steps[2 * STEPS];
    // So that not all of it is filled before the first page is evicted.
    fill(p, FIRST, 1);
    if (argc == 1) wait_until_paged(FIRST);
    fill(p, BYTES, 1);
    size_t wrong = check(p, BYTES, 1);
    if (argc == 1) {
        limit(RLIMIT_NOFILE, 16);
        limit(RLIMIT_STACK, MIB);
        limit(RLIMIT_MEMLOCK, 0);
        limit(RLIMIT_AS, 256 * MIB);
    }
    int fds = 0;
    for (int fd = 0; fd < 32; fd++) fds += open("/dev/null", O_RDONLY) >= 0;
    printf("%d descriptors more\n", fds);
    // Some by malloc, which libc maps, some by mmap.
    for (int i = 0; i < 2 * STEPS; i++) {
        steps[i] = i % 2 ? malloc(STEP) : mmap(NULL, STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (!steps[i] || steps[i] == MAP_FAILED) {
            printf("step %d: %s\n", i, strerror(errno));
            return 1;
        }
        fill(steps[i], STEP, i);
    }
    void *huge = mmap(NULL, 1024 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("1 GiB: %s\n", huge == MAP_FAILED ? strerror(errno) : "mapped");
    for (int i = 0; i < 2 * STEPS; i++) wrong += check(steps[i], STEP, i);
    wrong += check(p, BYTES, 1);
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
