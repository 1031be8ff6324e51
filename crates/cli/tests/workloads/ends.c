// A program of one thread that ends without ending its process: "libc" by syscall(SYS_exit), "bare" by an instruction of its own,
// "strict" under strict seccomp, "killed" by a filter that kills the thread.
#include "pages.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { FIRST = 40, OTHER = 20, STATUS = 7 };

int main(int argc, char **argv) {
    char how = argv[1][0];
    uint64_t *first = map(FIRST * MIB), *other = map(OTHER * MIB);
    fill(first, FIRST * MIB, 1);
    wait_until_paged(FIRST * MIB);
    fill(other, OTHER * MIB, 2);
    if (check(first, FIRST * MIB, 1) || check(other, OTHER * MIB, 2)) return 1;
    if (how == 'l') syscall(SYS_exit, STATUS);
    if (how == 's') MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
    if (how == 'k') {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {4, filter};
        MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
        bare(SYS_getppid, 0, 0, 0);
    }
    bare(SYS_exit, STATUS, 0, 0);
    return 1;
}
