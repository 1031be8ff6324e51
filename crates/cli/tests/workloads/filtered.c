// Forbids itself system calls. Carries out its arguments in turn: "fill" memory, "protect" it (read-only), make it "code"
// (also executable), "check" it, make "more" mappings, open "files" until no more are allowed, "fork" a child that checks it
// and changes some, start "threads" that check it, start a hundred on its own "stacks", "read" much by one call, run commands
// by "system" and popen, "exec" the other arguments in a new program, make a child by "vfork" that forbids itself sockets and
// starts a program, enter another "network" namespace or forbid itself abstract sockets ("landlock"), both by an instruction
// of its own, make calls that are "refused", install "garbage", begin "strict" mode, and filter=CALLS,ACTION[,all][,bare].
// CALLS that are allowed:
// "work": what a program without files needs; "few": read, write, exit, mmap; "most": all but userfaultfd, io_uring and some
// more, as in container engines; "noexec": all but mprotect to executable memory; "noask": all but tgkill, which asks whether
// a thread runs; "noids": all but those that ask for the ids of processes and threads, and sched_yield; "nosocket": all but
// socket; "path": all but socket, and execve of another path than the program's own. ACTION for other calls: "kill", "trap",
// "errno". "all": for all threads, else the calling one. "bare": installed by an instruction of its own.
#include "pages.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { BYTES = 56 * (1 << 20) };
static uint64_t *memory;
static int protected, full, strict, zeros;
static const char *path;

static const int FEW[] = {SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_mmap, SYS_munmap, SYS_rt_sigreturn, -1};
// With what fork, threads and malloc need; not what the stub thread needs.
static const int WORK[] = {SYS_read,      SYS_write,          SYS_exit,           SYS_exit_group, SYS_mmap,
                           SYS_munmap,    SYS_rt_sigreturn,   SYS_brk,            SYS_fstat,      SYS_newfstatat,
                           SYS_mprotect,  SYS_madvise,        SYS_futex,          SYS_clone,      SYS_clone3,
                           SYS_wait4,     SYS_rt_sigprocmask, SYS_set_robust_list, SYS_gettid,    SYS_getpid,
                           SYS_prctl,     SYS_rseq,           SYS_sched_yield,    SYS_tgkill,     SYS_openat,
                           SYS_sched_getaffinity, SYS_close,      SYS_rt_sigaction,   SYS_getrandom, -1};
static const int NONE[] = {-1};
static const int TGKILL[] = {SYS_tgkill, -1};
static const int IDS[] = {SYS_getpid, SYS_gettid, SYS_tgkill, SYS_sched_yield, -1};
static const int SOCKET[] = {SYS_socket, -1};
static const int MOST_BUT[] = {SYS_userfaultfd, SYS_io_uring_setup, SYS_ptrace, SYS_process_vm_readv, SYS_pidfd_getfd, SYS_mount, -1};

// Writes a filter; returns its length.
static int make(const char *how, struct sock_filter *code) {
    static const struct {
        const char *name;
        const int *calls;
    } DENIED[] = {{"noexec", NONE}, {"noask", TGKILL}, {"noids", IDS}, {"nosocket", SOCKET}, {"path", SOCKET}, {"most", MOST_BUT}};
    int exec = strstr(how, "noexec") != NULL, deny = 0, n = 0;
    const int *calls = strstr(how, "few") ? FEW : WORK;
    for (size_t i = 0; i < sizeof DENIED / sizeof *DENIED && !deny; i++)
        if (strstr(how, DENIED[i].name)) deny = 1, calls = DENIED[i].calls;
    unsigned other = strstr(how, "kill") ? SECCOMP_RET_KILL_PROCESS : strstr(how, "trap") ? SECCOMP_RET_TRAP : SECCOMP_RET_ERRNO | EPERM;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (; *calls >= 0; calls++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)*calls, 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, deny ? other : SECCOMP_RET_ALLOW);
    }
    if (exec) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2]));
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, other);
    }
    if (strstr(how, "path")) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 0, 3);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]));
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(uintptr_t)path, 1, 0);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, other);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, deny ? SECCOMP_RET_ALLOW : other);
    return n;
}

static void install(const char *how) {
    struct sock_filter code[80];
    struct sock_fprog program = {(unsigned short)make(how, code), code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (strstr(how, "bare")) {
        long at = (long)&program;
        if (strstr(how, "all") ? bare(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, at)
                               : bare(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, at))
            exit(4);
    } else if (strstr(how, "all")) {
        MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
    } else {
        MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    }
}

static void say(const char *what, long result) {
    char line[80];
    int length = snprintf(line, sizeof line, "%s: %ld\n", what, result);
    if (write(1, line, (size_t)length) != length) _exit(5);
}

static void told(const char *what, long result) {
    say(what, result < 0 ? -errno : result);
}

// Calls that the kernel refuses: filters with flags that it does not know, without the right to install them, and none; and
// arguments that cannot be read.
static void refused(void) {
    struct sock_filter code[80];
    struct sock_fprog program = {(unsigned short)make("few,kill", code), code}, nowhere = {4, (void *)8};
    void *volatile bad = (void *)8;
    told("flags", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0xf000, &program));
    if (geteuid() && !prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)) told("rights", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    told("no filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, bad));
    told("no code", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &nowhere));
    told("clone3", syscall(SYS_clone3, NULL, 88));
    told("clone3", syscall(SYS_clone3, bad, 88));
    told("readv", readv(zeros, bad, 1));
    told("preadv", syscall(SYS_preadv, zeros, bad, 1, 0, 0));
    // A page that could be read a moment before.
    char bytes[8];
    int id = shmget(IPC_PRIVATE, 4096, 0600);
    struct iovec *vector = shmat(id, NULL, 0);
    if (id < 0 || vector == (void *)-1 || shmctl(id, IPC_RMID, NULL)) _exit(5);
    *vector = (struct iovec){bytes, sizeof bytes};
    told("readv", readv(zeros, vector, 1));
    told("readv", readv(zeros, vector, 1));
    shmdt(vector);
    told("readv", readv(zeros, vector, 1));
    told("process_madvise", syscall(SYS_process_madvise, -1, bad, 1, MADV_REMOVE, 0));
    told("process_madvise", syscall(SYS_process_madvise, -1, bad, -1, MADV_REMOVE, 0));
}

// Filters for all threads that are no programs. The second one becomes one behind its last return only.
static void install_garbage(void) {
    struct sock_filter code[80] = {{0xffff, 0, 0, 0}};
    struct sock_fprog program = {1, code};
    const char *preload = getenv("LD_PRELOAD");
    char before[4096];
    snprintf(before, sizeof before, "%s", preload ? preload : "");
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    told("garbage", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
    program.len = (unsigned short)make("nosocket,kill", code);
    code[program.len++].code = 0xffff;
    told("garbage", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
    preload = getenv("LD_PRELOAD");
    say("preload", strcmp(before, preload ? preload : ""));
}

// A read that fills much memory.
static void read_much(void) {
    static char much[2 << 20];
    say("read", read(zeros, much, sizeof much));
}

static void *nothing(void *result) {
    return result;
}

// More threads than memfit checks the ends of at once.
static void start_on_stacks(void) {
    static char stacks[100][1 << 16] __attribute__((aligned(4096)));
    long ended = 0;
    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, stacks[i], sizeof stacks[i]);
        if (pthread_create(&thread, &attributes, nothing, NULL) || pthread_join(thread, NULL)) _exit(4);
        ended++;
    }
    say("stacks", ended);
}

// Without a function of the exec family.
static void run_commands(void) {
    int number = 0;
    say("system", system("exit 3"));
    FILE *pipe = popen("echo 4", "r");
    if (!pipe || fscanf(pipe, "%d", &number) != 1) number = -1;
    say("popen", number);
    say("its end", pclose(pipe));
}

static void by_vfork(const char *name) {
    static char *none[] = {"filtered", NULL};
    pid_t child = vfork();
    MUST(child);
    if (!child) {
        install("nosocket,kill");
        execv(name, none);
        _exit(6);
    }
    say("vfork", status_of(child));
}

static void *look(void *unused) {
    (void)unused;
    return (void *)check(memory, BYTES, 1);
}

int main(int argc, char **argv) {
    path = argv[0];
    MUST(zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC));
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (!strcmp(word, "fill")) {
            memory = map(BYTES);
            fill(memory, BYTES, 1);
        } else if (!strcmp(word, "check")) {
            say("wrong", (long)check(memory, BYTES, 1));
        } else if (!strcmp(word, "protect") || !strcmp(word, "code")) {
            protected = 1;
            MUST(mprotect(memory, BYTES, PROT_READ | (*word == 'c' ? PROT_EXEC : 0)));
        } else if (!strcmp(word, "more")) {
            // New mappings, large and small.
            size_t wrong = 0;
            for (int k = 0; k < 64; k++) {
                uint64_t *p = map(MIB / 4);
                fill(p, MIB / 4, (uint64_t)k);
                wrong += check(p, MIB / 4, (uint64_t)k);
                munmap(p, MIB / 4);
            }
            say("more", (long)wrong);
        } else if (!strcmp(word, "fork")) {
            pid_t child = fork();
            MUST(child);
            if (!child) {
                size_t wrong = check(memory, BYTES, 1);
                if (protected) MUST(mprotect(memory, BYTES / 4, PROT_READ | PROT_WRITE));
                fill(memory, BYTES / 4, 7);
                wrong += check(memory, BYTES / 4, 7);
                _exit(wrong != 0);
            }
            say("child", status_of(child));
        } else if (!strcmp(word, "threads")) {
            pthread_t thread;
            void *result = NULL;
            if (pthread_create(&thread, NULL, look, NULL) || pthread_join(thread, &result)) _exit(4);
            say("thread", (long)result);
        } else if (!strcmp(word, "stacks")) {
            start_on_stacks();
        } else if (!strcmp(word, "read")) {
            read_much();
        } else if (!strcmp(word, "system")) {
            run_commands();
        } else if (!strcmp(word, "vfork")) {
            by_vfork(argv[0]);
        } else if (!strcmp(word, "refused")) {
            refused();
        } else if (!strcmp(word, "garbage")) {
            install_garbage();
        } else if (!strcmp(word, "strict")) {
            if (memory) wait_until_paged(BYTES);
            MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
            strict = 1;
        } else if (!strcmp(word, "files")) {
            // No descriptor is left. The first one, which memfit's thread closes for itself, stays open here.
            if (memory) wait_until_paged(BYTES);
            while (open("/dev/null", O_RDONLY) >= 0) full = 1;
            say("files", fcntl(0, F_GETFD));
        } else if (!strcmp(word, "wait")) {
            sleep(4);
        } else if (!strcmp(word, "network")) {
            // Later the stub thread could not reach the pager.
            if (memory) wait_until_paged(BYTES);
            say("network", bare(SYS_unshare, CLONE_NEWNET, 0, 0));
        } else if (!strcmp(word, "landlock")) {
            if (memory) wait_until_paged(BYTES);
            struct { uint64_t files, net, scoped; } rules = {0, 0, 1};
            long set = syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
            MUST(set);
            MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
            say("landlock", bare(SYS_landlock_restrict_self, set, 0, 0));
        } else if (!strcmp(word, "exec")) {
            argv[i] = argv[0];
            execv(argv[0], argv + i);
            say("exec", errno);
            _exit(6);
        } else if (!strncmp(word, "filter=", 7)) {
            // The filter decides what happens to a process that is paged.
            if (memory && !full) wait_until_paged(BYTES);
            install(word + 7);
            say(word, 0);
        } else {
            return 2;
        }
    }
    // exit would flush streams, and needs more calls.
    if (strict) syscall(SYS_exit, 0);
    _exit(0);
}
