// Connects to the pager of a run COUNT times, and sends nothing or DESCRIPTORS descriptors in an invalid message: knocks
// SOCKET COUNT DESCRIPTORS. Prints how many connections were accepted, and stays until its input ends.
#include "pages.h"
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv) {
    int count = atoi(argv[2]), fds = atoi(argv[3]), made = 0;
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max;
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(argv[1]);
    memcpy(address.sun_path + 1, argv[1], length);
    for (int i = 0; i < count; i++) {
        int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        MUST(s);
        if (connect(s, (void *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + length)) break;
        made++;
        if (!fds) continue;
        char data = 'x', control[CMSG_SPACE(32 * sizeof(int))] = {0};
        struct iovec iov = {&data, 1};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(fds * sizeof(int))};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(fds * sizeof(int))};
        for (int j = 0; j < fds; j++) ((int *)CMSG_DATA(header))[j] = s;
        sendmsg(s, &message, MSG_NOSIGNAL);
    }
    printf("connected %d\n", made);
    fflush(stdout);
    while (getchar() != EOF);
    return 0;
}
