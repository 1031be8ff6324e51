// Forks children that check their memory. One child says hello to the pager again and again, posing as a sibling that is just
// being made: it wants the sibling's userfaultfd, which gives access to all of its memory. ./program MAGIC VERSION of a
// message.
#include "pages.h"
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { MEMORY = 48, CHILDREN = 40, AT_ONCE = 16, HELLO = 1, FORKED = 1 };

// FromStub of crates/wire.
struct hello {
    uint32_t magic, version, kind, flags, tid, error;
    uint64_t stack[2], segment[2], window[2], beacon, reservation[2], notice, token;
};

static int connected(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path + 1, name, strlen(name));
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    if (s < 0) return -1;
    if (!connect(s, (void *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) return s;
    close(s);
    return -1;
}

// How many userfaultfds came on a connection.
static int received(int s) {
    int found = 0;
    for (;;) {
        char data[256], control[256], link[64], path[64];
        struct iovec iov = {data, sizeof data};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(s, &message, MSG_DONTWAIT) <= 0) return found;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (!header || header->cmsg_type != SCM_RIGHTS) continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", *(int *)CMSG_DATA(header));
        ssize_t length = readlink(path, link, sizeof link - 1);
        link[length > 0 ? length : 0] = 0;
        found += strstr(link, "userfaultfd") != NULL;
        close(*(int *)CMSG_DATA(header));
    }
}

static int steal(const char *name, int magic, int version, int done) {
    int stolen = 0;
    struct pollfd end = {.fd = done, .events = POLLIN};
    while (!poll(&end, 1, 0)) {
        int s[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            // Thread numbers are assigned in sequence; this is about the last one.
            pid_t last = vfork();
            if (last == 0) _exit(0);
            waitpid(last, NULL, 0);
            struct hello hello = {.magic = magic, .version = version, .kind = HELLO, .flags = FORKED, .beacon = 0x10000};
            hello.tid = last + i / 4;
            s[i] = connected(name);
            if (s[i] >= 0) send(s[i], &hello, sizeof hello, MSG_NOSIGNAL);
        }
        usleep(5000);
        for (int i = 0; i < AT_ONCE; i++) {
            if (s[i] < 0) continue;
            stolen += received(s[i]);
            close(s[i]);
        }
    }
    return stolen;
}

int main(int argc, char **argv) {
    const char *name = getenv("MEMFIT_SOCKET");
    uint64_t *memory = map(MEMORY * MIB);
    int done[2], wrong = 0;
    fill(memory, MEMORY * MIB, 1);
    MUST(pipe(done));
    pid_t thief = fork();
    MUST(thief);
    if (thief == 0) {
        close(done[1]);
        _exit(name ? steal(name, atoi(argv[1]), atoi(argv[2]), done[0]) : 0);
    }
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        MUST(child);
        if (child == 0) _exit(check(memory, MEMORY * MIB / 8, 1) != 0);
        wrong += status_of(child) != 0;
    }
    wrong += check(memory, MEMORY * MIB, 1) != 0;
    close(done[1]);
    printf("stolen: %d\nwrong: %d\n", status_of(thief), wrong);
    return wrong != 0;
}
