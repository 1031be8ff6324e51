// Runs a program under a filter that denies what Docker's default filter denies. Docker's is an allowlist; this one forbids
// the calls that are not on that list (of 2023) or not on later ones (io_uring). clone3 gives ENOSYS, and clone makes no
// namespaces.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int DENIED[] = {
    SYS_userfaultfd,   SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_bpf,           SYS_mount,
    SYS_umount2,       SYS_setns,          SYS_unshare,        SYS_kcmp,              SYS_pidfd_getfd,   SYS_process_madvise,
    SYS_mbind,         SYS_set_mempolicy,  SYS_get_mempolicy,  SYS_migrate_pages,     SYS_move_pages,    SYS_perf_event_open,
    SYS_add_key,       SYS_keyctl,         SYS_request_key,    SYS_kexec_load,        SYS_swapon,        SYS_swapoff,
    SYS_reboot,        SYS_init_module,    SYS_finit_module,   SYS_delete_module,     SYS_pivot_root,    SYS_quotactl,
    SYS_open_tree,     SYS_move_mount,     SYS_fsopen,         SYS_fsconfig,          SYS_fsmount,       SYS_fspick,
    SYS_fanotify_init, SYS_iopl,           SYS_ioperm,         SYS_settimeofday,      SYS_clock_settime, SYS_syslog,
    SYS_acct,          SYS_vhangup,        SYS_ustat,          SYS_sysfs,             SYS_sethostname,   SYS_setdomainname,
};
enum { COUNT = sizeof DENIED / sizeof *DENIED, NAMESPACES = 0x7e020000 };

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    struct sock_filter code[2 * COUNT + 16];
    int n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)DENIED[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 0, 1);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)n, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("a filter");
        return 77;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
