// A process of 48 MiB forks. The child sleeps before it looks at what it has inherited.
#include "pages.h"

int main(void) {
    size_t bytes = 48 * MIB;
    uint64_t *p = map(bytes);
    fill(p, bytes, 1);
    pid_t child = fork();
    if (child == 0) {
        printf("child sleeps\n");
        fflush(stdout);
        sleep(20);
        printf(check(p, bytes, 1) ? "wrong\n" : "verified\n");
        fflush(stdout);
        _exit(0);
    }
    sleep(30);
    waitpid(child, NULL, 0);
    return 0;
}
