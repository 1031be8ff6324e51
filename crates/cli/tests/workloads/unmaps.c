// unmaps FILE MIB TIMES: makes FILE. Each of TIMES children maps it privately and read-only, and forbids itself ioctl, so
// that memfit detaches it. Meanwhile another thread of the child unmaps and drops parts of the mapping. The rest is verified.
#include "pages.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { PART = 16384 };
static uint64_t *mapping;
static size_t bytes;

// Of four parts the first is unmapped and the third dropped, from the end to the beginning: memfit looks for missing pages
// in the other direction.
static void *change(void *unused) {
    (void)unused;
    for (size_t at = bytes; at > 0; at -= 2 * PART) {
        char *part = (char *)mapping + at - 2 * PART;
        MUST((at / PART - 2) % 4 ? madvise(part, PART, MADV_DONTNEED) : munmap(part, PART));
        usleep(50);
    }
    return NULL;
}

static void forbid_ioctl(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static size_t run(int fd) {
    pthread_t thread;
    mapping = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    MUST((intptr_t)mapping);
    start_threads(&thread, 1, change, 0);
    forbid_ioctl();
    join_threads(&thread, 1);
    size_t wrong = 0;
    for (size_t i = PART / 8; i < bytes / 8; i++)
        if (i * 8 / PART % 4) wrong += mapping[i] != word(1, i);
    return wrong;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    bytes = (size_t)atoi(argv[2]) * MIB;
    uint64_t *all = map(bytes);
    fill(all, bytes, 1);
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(fd);
    for (size_t at = 0; at < bytes; at += MIB) MUST(write(fd, (char *)all + at, MIB));
    munmap(all, bytes);
    close(fd);
    MUST(fd = open(argv[1], O_RDONLY));
    for (int i = 0; i < atoi(argv[3]); i++) {
        pid_t child = fork();
        MUST(child);
        if (!child) _exit(run(fd) != 0);
        int status;
        MUST(waitpid(child, &status, 0));
        printf("child: %d\n", status);
    }
    return 0;
}
