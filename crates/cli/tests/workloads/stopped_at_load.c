// Children are stopped while the pager has them load libmemfit.so: each stops, goes on after SIGCONT, and ends. The children
// are this program, which is static.
#include "pages.h"
#include <signal.h>
#include <time.h>

enum { ROUNDS = 24, BYTES = 4 << 20, OWN = 48 << 20 };

static volatile sig_atomic_t ends;

static void end(int unused) {
    ends = 1 + unused * 0;
}

static int child(void) {
    MUST(signal(SIGTERM, end) == SIG_ERR ? -1 : 0);
    uint64_t *own = map(BYTES);
    size_t wrong = 0;
    fill(own, BYTES, 1);
    MUST(write(1, "f", 1));
    while (!ends) wrong += check(own, BYTES, 1);
    return wrong != 0;
}

// The first letter of a line of /proc/PID/status.
static int letter(pid_t pid, const char *name) {
    char path[64], line[256];
    int found = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *status = fopen(path, "r");
    while (status && !found && fgets(line, sizeof line, status))
        if (!strncmp(line, name, strlen(name))) found = line[strlen(name) + 1];
    if (status) fclose(status);
    return found;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

// Waits until the letter is one of these, or for some seconds.
static int becomes(pid_t pid, const char *name, const char *which, double most) {
    for (double begun = seconds(); !strchr(which, letter(pid, name));)
        if (seconds() - begun > most) return 0;
    return 1;
}

// Tells the child to end once it has filled its memory. Returns 0 if it has not ended within a minute.
static int is_ended(pid_t pid, int filled, int *status) {
    char byte;
    MUST(fcntl(filled, F_SETFL, O_NONBLOCK));
    for (double begun = seconds(); seconds() - begun < 60; usleep(1000)) {
        if (read(filled, &byte, 1) == 1) MUST(kill(pid, SIGTERM));
        if (waitpid(pid, status, WNOHANG) == pid) return 1;
    }
    MUST(kill(pid, SIGKILL));
    MUST(waitpid(pid, status, 0));
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) return child();
    size_t wrong = 0;
    uint64_t *own = map(OWN), state = 88172645463325252u;
    fill(own, OWN, 2);
    for (int round = 0; round < ROUNDS; round++) {
        int filled[2], status = 0;
        MUST(pipe(filled));
        pid_t pid = fork();
        MUST(pid);
        if (!pid) {
            MUST(dup2(filled[1], 1));
            execl("/proc/self/exe", argv[0], "child", NULL);
            _exit(3);
        }
        // The pager traces it when it loads the library; SIGSTOP comes at any moment after that. In every other round SIGCONT
        // comes before the child has stopped.
        if (preloaded_memfit()) becomes(pid, "TracerPid:", "123456789", 1);
        nanosleep(&(struct timespec){0, (long)(next(&state) % 600000)}, NULL);
        MUST(kill(pid, SIGSTOP));
        if (round % 2) nanosleep(&(struct timespec){0, (long)(next(&state) % 100000)}, NULL);
        else if (!becomes(pid, "State:", "T", 60)) printf("round %d: it does not stop\n", round), wrong++;
        MUST(kill(pid, SIGCONT));
        if (!is_ended(pid, filled[0], &status)) printf("round %d: it does not go on\n", round);
        if (status) printf("round %d: status %#x\n", round, status), wrong++;
        close(filled[0]);
        close(filled[1]);
    }
    printf("wrong: %zu\n", wrong + check(own, OWN, 2));
    return wrong != 0;
}
