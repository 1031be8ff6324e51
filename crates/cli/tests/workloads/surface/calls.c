// Calls in which the kernel reads or writes evicted memory.
#include "rows.h"
#include <dirent.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>

static int file_of(uint64_t *contents, size_t bytes) {
    int file = open("surface.data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(file);
    unlink("surface.data");
    if (write(file, contents, bytes) != (ssize_t)bytes) exit(2);
    return file;
}

static size_t files(uint64_t *area) {
    int file = file_of(area, AREA);
    uint64_t *to = evicted(AREA, 8);
    if (pread(file, to, AREA, 0) != AREA) return 1;
    size_t wrong = check(to, AREA, SEED);
    evict(to, AREA);
    // Sixteen parts, the last one first.
    struct iovec parts[16];
    for (int i = 0; i < 16; i++) parts[i] = (struct iovec){byte_at(to, AREA / 16 * (15 - i)), AREA / 16};
    if (preadv(file, parts, 16, 0) != AREA) return 1;
    for (int i = 0; i < 16; i++) {
        const uint64_t *part = parts[i].iov_base;
        for (size_t k = 0; k < AREA / 16 / 8; k++) wrong += part[k] != word(SEED, AREA / 16 / 8 * i + k);
    }
    evict(to, AREA);
    if (pwritev(file, parts, 16, 0) != AREA) return 1;
    evict(area, AREA);
    if (pread(file, area, AREA, 0) != AREA) return 1;
    return wrong + check(area, AREA, SEED);
}

static size_t pipes(uint64_t *area) {
    int ends[2];
    MUST(pipe(ends));
    uint64_t *to = evicted(AREA, 8);
    fflush(stdout);
    pid_t child = fork();
    MUST(child);
    close(ends[child == 0 ? 0 : 1]);
    if (!child) {
        for (size_t done = 0; done < AREA;) {
            ssize_t now = write(ends[1], byte_at(area, done), AREA - done);
            if (now <= 0) _exit(1);
            done += now;
        }
        _exit(0);
    }
    for (size_t done = 0; done < AREA;) {
        ssize_t now = read(ends[0], byte_at(to, done), AREA - done);
        if (now <= 0) return 1;
        done += now;
    }
    return status_of(child) + check(to, AREA, SEED) + check(area, AREA, SEED);
}

// The message, its vector and its control data are evicted, too.
static size_t sockets(uint64_t *area) {
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    struct all {
        struct msghdr message;
        struct iovec part;
        char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(16)));
        char room[4096];
    } *of = (void *)evicted(QUARTER, 1), *sent = of, *got = (void *)((char *)of + HALF / 4);
    sent->part = (struct iovec){area, 16 * PAGE};
    sent->message = (struct msghdr){.msg_iov = &sent->part, .msg_iovlen = 1, .msg_control = sent->control, .msg_controllen = sizeof sent->control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&sent->message);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &ends[0], sizeof(int));
    uint64_t *to = map(QUARTER);
    got->part = (struct iovec){to, 16 * PAGE};
    got->message = (struct msghdr){.msg_iov = &got->part, .msg_iovlen = 1, .msg_control = got->control, .msg_controllen = sizeof got->control};
    evict_all(sent, sizeof *sent);
    MUST(sendmsg(ends[0], &sent->message, 0));
    evict_all(got, sizeof *got);
    ssize_t bytes = recvmsg(ends[1], &got->message, 0);
    MUST(bytes);
    head = CMSG_FIRSTHDR(&got->message);
    int passed = -1;
    if (head) memcpy(&passed, CMSG_DATA(head), sizeof passed);
    // A stream may give a part of the message.
    printf("descriptor %s\n", passed > 2 ? "passed" : "lost");
    return (bytes < 8 * (ssize_t)PAGE) + check(to, bytes / PAGE * PAGE, SEED) + check(area, AREA, SEED);
}

// Pages that are given to a pipe stay as they were when they were given.
static size_t spliced(uint64_t *area) {
    int ends[2];
    MUST(pipe(ends));
    size_t bytes = 8 * PAGE, wrong = 0;
    uint64_t *to = map(bytes);
    for (int gift = 0; gift < 2; gift++) {
        struct iovec part = {byte_at(area, gift * QUARTER), bytes};
        if (vmsplice(ends[1], &part, 1, gift ? SPLICE_F_GIFT : 0) != (ssize_t)bytes) return REFUSED;
        evicted(AREA, 9);
        if (read(ends[0], to, bytes) != (ssize_t)bytes) return 1;
        for (size_t i = 0; i < bytes / 8; i++) wrong += to[i] != word(SEED, gift * QUARTER / 8 + i);
    }
    // The other way: from a pipe into evicted memory.
    if (write(ends[1], to, bytes) != (ssize_t)bytes) return 1;
    struct iovec back = {byte_at(area, HALF), bytes};
    if (vmsplice(ends[0], &back, 1, 0) != (ssize_t)bytes) return 1;
    for (size_t i = 0; i < bytes / 8; i++) wrong += area[HALF / 8 + i] != word(SEED, QUARTER / 8 + i);
    return wrong + check_part(area, 0, HALF, SEED) + check_part(area, HALF + bytes, HALF - bytes, SEED);
}

static size_t of_others(uint64_t *area) {
    uint64_t *to = map(AREA);
    struct iovec here = {to, AREA}, there = {area, AREA};
    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != AREA) return REFUSED;
    size_t wrong = check(to, AREA, SEED);
    evict(to, AREA);
    evict(area, AREA);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    // A child reads its parent's memory, and writes to another part of it.
    uint64_t *target = evicted(AREA, 8);
    pid_t self = getpid();
    struct iovec also = {target, AREA};
    int status = IN_CHILD(process_vm_readv(self, &here, 1, &there, 1, 0) != AREA || check(to, AREA, SEED) ||
                          process_vm_writev(self, &here, 1, &also, 1, 0) != AREA);
    return wrong + status + check(target, AREA, SEED) + check(area, AREA, SEED);
}

static size_t by_file(uint64_t *area) {
    int memory = open("/proc/self/mem", O_RDWR);
    if (memory < 0) return REFUSED;
    uint64_t page[512];
    size_t wrong = 0;
    for (size_t at = 0; at < AREA; at += 16 * PAGE) {
        // The kernel waits for no evicted page here (docs/limits.md).
        if (pread(memory, page, PAGE, (off_t)(uintptr_t)area + at) != PAGE) {
            wrong += !preloaded_memfit() || errno != EIO;
            if (area[at / 8] != word(SEED, at / 8)) wrong++;
            if (pread(memory, page, PAGE, (off_t)(uintptr_t)area + at) != PAGE) continue;
        }
        for (size_t i = 0; i < 512; i++) wrong += page[i] != word(SEED, at / 8 + i);
    }
    return wrong + check(area, AREA, SEED);
}

static size_t asynchronous(uint64_t *area) {
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 4, &context)) return REFUSED;
    int file = file_of(area, AREA);
    uint64_t *to = evicted(AREA, 8);
    struct iocb *block = (void *)evicted(QUARTER, 1), *list[1] = {block};
    *block = (struct iocb){.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = file, .aio_buf = (uintptr_t)to, .aio_nbytes = AREA};
    evict_all(block, sizeof *block);
    MUST(syscall(SYS_io_submit, context, 1l, list));
    struct io_event *event = (void *)byte_at(block, QUARTER / 2);
    if (syscall(SYS_io_getevents, context, 1l, 1l, event, NULL) != 1) return 1;
    return (event->res != AREA) + check(to, AREA, SEED);
}

static long futex(void *at, int operation, uint32_t value) {
    return syscall(SYS_futex, at, operation, value, NULL, NULL, 0);
}

static size_t no_waiter(uint64_t *area) {
    uint32_t *at = byte_at(area, QUARTER), value = *(volatile uint32_t *)at;
    evict_all(at, 4);
    told("other value", futex(at, FUTEX_WAIT, value + 1));
    evict_all(at, 4);
    told("private", futex(at, FUTEX_WAIT_PRIVATE, value + 1));
    printf("woken: %ld\n", futex(byte_at(area, HALF), FUTEX_WAKE, 1));
    return check(area, AREA, SEED);
}

static _Atomic int waiting;
static void *wait_for_word(void *at) {
    waiting = 1;
    while (*(volatile uint32_t *)at == 7) {
        waiting = 2;
        futex(at, FUTEX_WAIT, 7);
    }
    return NULL;
}

// Lets the other thread begin its call. Where it has not begun when the pages leave, the row tests less.
static void let_sleep(void) {
    while (waiting < 2) usleep(1000);
    usleep(50000);
}

// The word of a sleeping thread is evicted meanwhile. Another word takes its waiters over.
static size_t waiter(uint64_t *area) {
    size_t wrong = 0;
    for (int way = 0; way < 3; way++) {
        uint32_t *at = byte_at(area, QUARTER + way * PAGE), *other = byte_at(area, HALF + way * PAGE);
        *at = 7, waiting = 0;
        pthread_t thread;
        pthread_create(&thread, NULL, wait_for_word, at);
        let_sleep();
        evict_all(at, 4);
        if (way == 1) wrong += syscall(SYS_futex, at, FUTEX_CMP_REQUEUE, 0, (uintptr_t)1, other, 7) < 0;
        *at = 8;
        // The thread has possibly not gone to sleep yet: then it sees the new value.
        futex(at, FUTEX_WAKE, 1);
        futex(other, FUTEX_WAKE, 1);
        pthread_join(thread, NULL);
        *at = (uint32_t)word(SEED, (QUARTER + way * PAGE) / 8);
    }
    return wrong + check(area, AREA, SEED);
}

static long held, given_up;
static void *hold(void *at) {
    held = futex(at, FUTEX_LOCK_PI, 0);
    waiting = 2;
    while (waiting == 2) usleep(1000);
    given_up = futex(at, FUTEX_UNLOCK_PI, 0);
    return NULL;
}

static size_t inherited_priority(uint64_t *area) {
    uint32_t *at = byte_at(area, QUARTER);
    *at = 0, waiting = 0;
    evict_all(at, 4);
    pthread_t thread;
    pthread_create(&thread, NULL, hold, at);
    let_sleep();
    evict_all(at, 4);
    waiting = 3;
    told("taken", futex(at, FUTEX_LOCK_PI, 0));
    pthread_join(thread, NULL);
    told("held", held);
    told("given up", given_up);
    evict_all(at, 4);
    told("left", futex(at, FUTEX_UNLOCK_PI, 0));
    *at = (uint32_t)word(SEED, QUARTER / 8);
    return check(area, AREA, SEED);
}

// futex_waitv: the list and the words are evicted.
static size_t waits_for_many(uint64_t *area) {
    struct waiter { uint64_t value, address; uint32_t flags, reserved; } *list = (void *)evicted(QUARTER, 1);
    for (int i = 0; i < 8; i++) list[i] = (struct waiter){7, (uintptr_t)byte_at(area, i * QUARTER / 2), 2, 0};
    *(uint32_t *)list[5].address = 8;
    for (int i = 0; i < 8; i++) if (i != 5) *(uint32_t *)list[i].address = 7;
    for (int i = 0; i < 8; i++) evict_all((void *)list[i].address, 4);
    evict_all(list, 8 * sizeof *list);
    long result = syscall(449, list, 8u, 0u, NULL, 0);
    if (result < 0 && errno == ENOSYS) return REFUSED;
    told("waitv", result);
    for (int i = 0; i < 8; i++) *(uint32_t *)list[i].address = (uint32_t)word(SEED, i * QUARTER / 2 / 8);
    return check(area, AREA, SEED);
}

// A read that waits, and a poll: where they write is evicted while they wait.
struct blocked {
    int from;
    void *to;
    long result;
};

static void *read_blocked(void *arg) {
    struct blocked *of = arg;
    waiting = 2;
    of->result = read(of->from, of->to, PAGE);
    return NULL;
}

static void *poll_blocked(void *arg) {
    struct blocked *of = arg;
    waiting = 2;
    of->result = poll(of->to, 1, -1);
    return NULL;
}

static size_t blocked(uint64_t *area) {
    int ends[2];
    MUST(pipe(ends));
    struct blocked reader = {ends[0], byte_at(area, QUARTER), -1}, poller = {ends[0], byte_at(area, HALF), -1};
    pthread_t threads[2];
    *(struct pollfd *)poller.to = (struct pollfd){.fd = ends[0], .events = POLLIN};
    evict_all(poller.to, PAGE);
    waiting = 0;
    pthread_create(&threads[1], NULL, poll_blocked, &poller);
    let_sleep();
    evict_all(poller.to, PAGE);
    uint64_t page[512];
    fill(page, PAGE, 8);
    if (write(ends[1], page, PAGE) != PAGE) return 1;
    pthread_join(threads[1], NULL);
    size_t wrong = poller.result != 1 || ((struct pollfd *)poller.to)->revents != POLLIN;
    if (read(ends[0], page, PAGE) != PAGE) return 1;
    waiting = 0;
    pthread_create(&threads[0], NULL, read_blocked, &reader);
    let_sleep();
    evict_all(reader.to, PAGE);
    if (write(ends[1], page, PAGE) != PAGE) return 1;
    pthread_join(threads[0], NULL);
    wrong += reader.result != PAGE || check(reader.to, PAGE, 8);
    return wrong + check_part(area, 0, QUARTER, SEED) + check_part(area, HALF + PAGE, HALF - PAGE, SEED);
}

// Small structures that calls read and write.
static size_t pointers(uint64_t *area) {
    size_t wrong = 0;
    char *at = byte_at(area, QUARTER);
#define EVICTED(type, offset) ({ evict_all(at, PAGE); evict_all(at + (offset), PAGE); (type *)(at + (offset)); })
    strcpy(at, "/proc/self/status");
    struct stat *status = EVICTED(struct stat, 8 * PAGE);
    wrong += stat(at, status) != 0;
    struct timespec *pause = (void *)(at + 16 * PAGE);
    *pause = (struct timespec){0, 1000000};
    wrong += nanosleep(EVICTED(struct timespec, 16 * PAGE), NULL) != 0;
    wrong += syscall(SYS_clock_gettime, CLOCK_MONOTONIC, EVICTED(struct timespec, 20 * PAGE)) != 0;
    wrong += clock_gettime(CLOCK_MONOTONIC, EVICTED(struct timespec, 24 * PAGE)) != 0;
    wrong += !getcwd(EVICTED(char, 28 * PAGE), PAGE);
    wrong += readlink("/proc/self/exe", EVICTED(char, 32 * PAGE), PAGE) <= 0;
    wrong += uname(EVICTED(struct utsname, 36 * PAGE)) != 0;
    int directory = open("/proc/self", O_RDONLY | O_DIRECTORY), ends[2];
    wrong += syscall(SYS_getdents64, directory, EVICTED(char, 40 * PAGE), 4 * PAGE) <= 0;
    MUST(pipe(ends));
    wrong += write(ends[1], "four", 4) != 4;
    int *count = EVICTED(int, 48 * PAGE);
    wrong += ioctl(ends[0], FIONREAD, count) != 0 || *count != 4;
    int events = epoll_create1(0);
    struct epoll_event *event = (void *)(at + 52 * PAGE);
    *event = (struct epoll_event){.events = EPOLLIN, .data.fd = 4711};
    wrong += epoll_ctl(events, EPOLL_CTL_ADD, ends[0], EVICTED(struct epoll_event, 52 * PAGE)) != 0;
    event = EVICTED(struct epoll_event, 56 * PAGE);
    wrong += epoll_wait(events, event, 1, 0) != 1 || event->data.fd != 4711;
    strcpy(at + 60 * PAGE, "surface-name");
    wrong += prctl(PR_SET_NAME, EVICTED(char, 60 * PAGE)) != 0;
    char *name = EVICTED(char, 64 * PAGE);
    wrong += prctl(PR_GET_NAME, name) != 0 || strcmp(name, "surface-name");
    wrong += getrandom(EVICTED(char, 68 * PAGE), 8 * PAGE, 0) != 8 * PAGE;
    fd_set *set = (void *)(at + 80 * PAGE);
    FD_ZERO(set);
    FD_SET(ends[0], set);
    wrong += select(ends[0] + 1, EVICTED(fd_set, 80 * PAGE), NULL, NULL, NULL) != 1;
    struct rlimit *limit = EVICTED(struct rlimit, 84 * PAGE);
    wrong += getrlimit(RLIMIT_NOFILE, limit) != 0;
    return wrong + check_part(area, 0, QUARTER, SEED) + check_part(area, HALF, HALF, SEED);
}

static size_t arguments(uint64_t *area) {
    char **words = byte_at(area, QUARTER), *text = byte_at(area, HALF);
    words[0] = strcpy(text, "echo"), words[1] = strcpy(text + 5, "evicted"), words[2] = strcpy(text + PAGE, "arguments"), words[3] = NULL;
    evict_all(words, PAGE);
    evict_all(text, 2 * PAGE);
    fflush(stdout);
    pid_t child = fork();
    MUST(child);
    if (!child) {
        execve("/bin/echo", words, words + 3);
        _exit(9);
    }
    return status_of(child) + check_part(area, 0, QUARTER, SEED);
}

static size_t filter(uint64_t *area) {
    struct sock_filter *code = byte_at(area, QUARTER);
    struct sock_fprog *program = byte_at(area, HALF);
    code[0] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    *program = (struct sock_fprog){1, code};
    evict_all(code, PAGE);
    evict_all(program, PAGE);
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program)) return REFUSED;
    size_t wrong = check_part(area, 0, QUARTER, SEED);
    evict(area, AREA);
    return wrong + check_part(area, 0, QUARTER, SEED) + check_part(area, HALF + PAGE, HALF - PAGE, SEED);
}

// A process that has given up most files, and sockets and signals outside of its domain.
static size_t landlock(uint64_t *area) {
    struct { uint64_t files, net, scoped; } *rules = byte_at(area, QUARTER);
    int version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
    if (version < 1) return REFUSED;
    *rules = (typeof(*rules)){0x1fff, version >= 4 ? 3 : 0, version >= 6 ? 3 : 0};
    evict_all(rules, sizeof *rules);
    int set = syscall(SYS_landlock_create_ruleset, rules, version >= 6 ? 24 : version >= 4 ? 16 : 8, 0);
    MUST(set);
    // So that it stays open for evict().
    outside(area, PAGE);
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(syscall(SYS_landlock_restrict_self, set, 0));
    size_t wrong = check_part(area, 0, QUARTER, SEED);
    evict(area, AREA);
    wrong += check_part(area, 0, QUARTER, SEED) + check_part(area, HALF, HALF, SEED);
    evict(area, AREA);
    wrong += IN_CHILD(check_part(area, 0, QUARTER, SEED));
    return wrong + check_part(area, HALF, HALF, SEED);
}

const struct row rows[] = {
    {"read-write", files},
    {"pipe", pipes},
    {"sendmsg", sockets},
    {"vmsplice", spliced},
    {"process_vm", of_others},
    {"proc-mem", by_file},
    {"aio", asynchronous},
    {"futex", no_waiter},
    {"futex-waiter", waiter},
    {"futex-pi", inherited_priority},
    {"futex_waitv", waits_for_many},
    {"blocked-calls", blocked},
    {"pointers", pointers},
    {"exec-arguments", arguments},
    {"seccomp", filter},
    {"landlock", landlock},
    {NULL, NULL},
};
