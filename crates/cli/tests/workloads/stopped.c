// A program is stopped while another one fills memory, and continues when that has ended: its memory is as it was.
#include "pages.h"
#include <signal.h>

enum { OWN = 28 };

static void hold(void) {
    char go;
    uint64_t *own = map(OWN * MIB);
    fill(own, OWN * MIB, 1);
    MUST(write(1, "f", 1));
    MUST(read(0, &go, 1));
    _exit(check(own, OWN * MIB, 1) != 0);
}

static void spend(pid_t stopped) {
    size_t wrong = 0;
    uint64_t *own = map(OWN * MIB);
    for (int round = 0; round < 4; round++) {
        fill(own, OWN * MIB, 2 + (uint64_t)round);
        if (round == 0) wait_until_both_paged(2 * OWN * MIB, stopped);
        wrong += check(own, OWN * MIB, 2 + (uint64_t)round);
    }
    _exit(wrong != 0);
}

int main(int argc, char **argv) {
    if (argc > 1) strcmp(argv[1], "hold") ? spend(atoi(argv[1])) : hold();
    int up[2], down[2], status;
    char filled;
    MUST(pipe(up));
    MUST(pipe(down));
    pid_t holder = fork();
    MUST(holder);
    if (!holder) {
        MUST(dup2(down[0], 0));
        MUST(dup2(up[1], 1));
        execl("/proc/self/exe", argv[0], "hold", NULL);
        _exit(3);
    }
    MUST(read(up[0], &filled, 1));
    MUST(kill(holder, SIGSTOP));
    MUST(waitpid(holder, &status, WUNTRACED));
    pid_t spender = fork();
    MUST(spender);
    if (!spender) {
        char stopped[16];
        snprintf(stopped, sizeof stopped, "%d", holder);
        execl("/proc/self/exe", argv[0], stopped, NULL);
        _exit(3);
    }
    MUST(waitpid(spender, &status, 0));
    printf("beside a stopped one: %d\n", status);
    MUST(waitpid(holder, &status, WNOHANG | WUNTRACED));
    MUST(kill(holder, SIGCONT));
    MUST(write(down[1], "g", 1));
    MUST(waitpid(holder, &status, 0));
    printf("when it goes on: %d\n", status);
    return 0;
}
