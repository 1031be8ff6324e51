// A thread installs filters under which programs can have no stub. Each takes libmemfit.so out of the environment, which is
// long, so another thread forks meanwhile. A filter of the child must do the same there.
#include "pages.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { ENTRIES = 100000, FILTERS = 2000, ROUNDS = 20 };

extern char **environ;
static volatile int installed, done;

static void install(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void *installer(void *unused) {
    for (; !done && installed < FILTERS; installed++) install();
    return unused;
}

int main(void) {
    static char *entries[ENTRIES + 2], preload[4096];
    const char *stub = preloaded_memfit();
    char **last = &entries[ENTRIES];
    pthread_t thread;
    for (int i = 0; i < ENTRIES; i++) entries[i] = "A=1";
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", stub ? stub : "");
    *last = strdup(preload), environ = entries;
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    start_threads(&thread, 1, installer, 0);
    while (installed < 2) usleep(100);
    int wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        pid_t pid = fork();
        MUST(pid);
        if (!pid) {
            *last = strdup(preload);
            install();
            _exit(strstr(*last, "libmemfit.so") != NULL);
        }
        wrong += status_of(pid) != 0;
    }
    done = 1;
    join_threads(&thread, 1);
    printf("wrong: %d\n", wrong);
    return wrong != 0;
}
