// Closes all descriptors but the first three, before and after it uses much memory, and in children.
#include "pages.h"
#include <sys/syscall.h>

enum { BYTES = 56 * (1 << 20) };

static void close_all(void) {
    MUST(syscall(SYS_close_range, 3, ~0U, 0));
}

static int child(uint64_t *p, int how) {
    if (how == 0) {
        close_all();
    } else if (how == 1) {
        // Those of a descriptor table of its own.
        MUST(syscall(SYS_close_range, 3, ~0U, 2));
    } else {
        for (int fd = 3; fd < 1024; fd++) close(fd);
    }
    if (check(p, BYTES, 1)) return 1;
    fill(p, BYTES / 8, 5);
    return check(p, BYTES / 8, 5) != 0;
}

int main(void) {
    close_all();
    uint64_t *p = map(BYTES);
    fill(p, BYTES, 1);
    size_t wrong = check(p, BYTES, 1);
    close_all();
    wrong += check(p, BYTES, 1);
    // The next descriptor must be the lowest free number.
    int fd = open("/dev/null", O_WRONLY);
    printf("next: %d\n", fd);
    fflush(stdout);
    for (int how = 0; how < 3; how++) {
        pid_t pid = fork();
        MUST(pid);
        if (!pid) _exit(child(p, how));
        printf("child: %d\n", status_of(pid));
        fflush(stdout);
    }
    close_all();
    wrong += check(p, BYTES, 1);
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
