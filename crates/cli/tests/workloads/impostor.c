/* impostor MAGIC VERSION: a program connects to the pager as a stub does, hands the connection to another process, and
 * calls exec. The other process answers the pager with a userfaultfd of its own memory, and reports a broken invariant.
 * It must not get a file of the first process, which is another program by then, and that one must not be killed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HELLO = 1, ATTACH = 2, ATTACHED = 3, LEND = 5, BYE = 8, PAGEMAP = 14, MAPS = 20 };

struct from_stub {
    uint32_t magic, version, kind, flags, tid, error;
    uint64_t stack[2], segment[2], window[2], image[2], beacon, reservation[2], doorbell, token, entry, filters;
};
struct command {
    uint32_t kind, flags;
    uint64_t segment_bytes, range[2], offset;
};

static char *volatile memory;
static int sock;
static uint32_t magic, version;

static void say(struct from_stub *message, int fd) {
    message->magic = magic;
    message->version = version;
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {message, sizeof *message};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        struct cmsghdr *one = CMSG_FIRSTHDR(&header);
        one->cmsg_level = SOL_SOCKET;
        one->cmsg_type = SCM_RIGHTS;
        one->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(one), &fd, sizeof fd);
    }
    if (sendmsg(sock, &header, 0) < 0)
        perror("sendmsg");
}

/* The kind of the next message within a time, 0 without one. */
static uint32_t hear(struct command *command, int *fd, int ms) {
    struct pollfd ready = {sock, POLLIN, 0};
    if (poll(&ready, 1, ms) <= 0)
        return 0;
    char control[64];
    struct iovec part = {command, sizeof *command};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t bytes = recvmsg(sock, &header, 0);
    struct cmsghdr *one = CMSG_FIRSTHDR(&header);
    if (bytes > 0 && one && one->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(one), sizeof *fd);
    return bytes == sizeof *command ? command->kind : BYE;
}

/* Answers as the stub of the first process. */
static int pretend(int told) {
    struct command command;
    int device = -1, segment = -1, lent = 0, fd = -1;
    uint32_t kind;
    while ((kind = hear(&command, &fd, 20000)) != ATTACH) {
        if (kind == 0 || kind == BYE) {
            printf("the pager did not attach it\n");
            return 1;
        }
        if (kind == LEND)
            device = fd;
        lent += kind == PAGEMAP || kind == MAPS;
    }
    segment = fd;
    /* The first process calls exec now. */
    if (write(told, "x", 1) != 1)
        return 1;
    usleep(300000);
    int uffd = device >= 0 ? ioctl(device, 0xAA00, O_NONBLOCK | O_CLOEXEC) : (int)syscall(SYS_userfaultfd, O_NONBLOCK | O_CLOEXEC);
    char *ring = mmap(0, command.segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment, 0);
    size_t bytes = 3 * 64 * 4096;
    char *window = mmap(0, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (uffd < 0 || ring == MAP_FAILED || window == MAP_FAILED)
        return 1;
    struct from_stub answer = {.kind = ATTACHED, .tid = (uint32_t)getpid()};
    answer.segment[0] = (uintptr_t)ring;
    answer.segment[1] = (uintptr_t)ring + command.segment_bytes;
    answer.window[0] = (uintptr_t)window;
    answer.window[1] = (uintptr_t)window + bytes;
    say(&answer, uffd);
    /* The word behind gate, posted, finished, cancelled and ranges. */
    ((volatile uint32_t *)ring)[5] = 1;
    while ((kind = hear(&command, &fd, 1000)) != 0 && kind != BYE)
        lent += kind == PAGEMAP || kind == MAPS;
    printf("lent: %d\n", lent);
    return 0;
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    magic = (uint32_t)strtoul(words[1], 0, 10);
    version = (uint32_t)strtoul(words[2], 0, 10);
    /* Enough to be attached. */
    memory = malloc(4 << 20);
    memset(memory, 1, 4 << 20);
    const char *name = getenv("MEMFIT_SOCKET");
    struct sockaddr_un address = {AF_UNIX};
    if (!name)
        return 2;
    strcpy(address.sun_path + 1, name);
    sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (connect(sock, (void *)&address, 3 + strlen(name)))
        return perror("connect"), 1;
    struct from_stub hello = {.kind = HELLO, .tid = (uint32_t)getpid()};
    say(&hello, -1);
    int ready[2];
    if (pipe(ready))
        return 1;
    if (fork() == 0) {
        close(ready[0]);
        int failed = pretend(ready[1]);
        fflush(stdout);
        _exit(failed);
    }
    close(ready[1]);
    close(sock);
    char byte;
    /* So much that pages must leave: the pager looks at the ring of the process. */
    if (fork() == 0) {
        memory = malloc(46 << 20);
        memset(memory, 1, 46 << 20);
        sleep(4);
        _exit(0);
    }
    if (read(ready[0], &byte, 1) != 1)
        return 1;
    execl("/bin/sh", "sh", "-c", "sleep 2; echo lives", (char *)0);
    return 1;
}
