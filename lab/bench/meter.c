/* meter --out FILE [--interval-ms N] [--timeout S] [--join CGROUP_DIR]...
 *       [--stat MEMORY_STAT --prefix total_|""] [--zram MM_STAT] [--zswap] -- COMMAND...
 *
 * Runs COMMAND inside the given cgroups, samples the memory of the first one
 * and of the compressed pool from outside, and writes one JSON object to FILE.
 * One sample is
 *     resident = max(anon + shmem, inactive_anon + active_anon)
 *     total    = resident + pool
 * The second form of resident includes pages of the swap cache once, mapped
 * or not. The peak of `total` is the peak of simultaneous sums.
 *
 * On SIGTERM or SIGINT, when the caller dies, and at the time limit, every process of the
 * first cgroup (else: the command) is killed. Nothing else is ever killed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop;
static void on_signal(int s) { stop = s; }

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "meter: %s: %s\n", what, strerror(errno));
    exit(125);
}

static int open_read(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) die(path);
    return fd;
}

static int read_all(int fd, char *buf, size_t size) {
    ssize_t n, have = 0;
    while ((size_t)have < size - 1 && (n = pread(fd, buf + have, size - 1 - have, have)) > 0) have += n;
    buf[have] = 0;
    return have > 0;
}

/* The value of "PREFIXKEY value" at the start of a line. */
static uint64_t field(const char *text, const char *prefix, const char *key) {
    char want[64];
    int n = snprintf(want, sizeof want, "%s%s ", prefix, key);
    for (const char *p = text; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : p)
        if (!strncmp(p, want, n)) return strtoull(p + n, NULL, 10);
    return 0;
}

static void kill_all(const char *cgroup, pid_t child) {
    char path[4096], buf[65536];
    if (!cgroup) { kill(child, SIGKILL); return; }
    snprintf(path, sizeof path, "%s/cgroup.procs", cgroup);
    for (int round = 0; round < 100; round++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC), any = 0;
        if (fd < 0) break;
        if (read_all(fd, buf, sizeof buf))
            for (char *p = buf; *p;) {
                long pid = strtol(p, &p, 10);
                if (pid > 1) { kill((pid_t)pid, SIGKILL); any = 1; }
                while (*p == '\n') p++;
            }
        close(fd);
        if (!any) break;
        usleep(10000);
    }
    kill(child, SIGKILL);
}

struct peaks { uint64_t total, resident, pool, anon, shmem, lru, swapcached, samples, max_gap; };

int main(int argc, char **argv) {
    const char *out = NULL, *prefix = "", *join[8];
    int njoin = 0, stat_fd = -1, zram_fd = -1, zswap_fd = -1, i = 1;
    long interval = 10;
    double timeout = 0;
    for (; i < argc && strcmp(argv[i], "--"); i++) {
        const char *a = argv[i];
        if (!strcmp(a, "--zswap")) { zswap_fd = open_read("/proc/meminfo"); continue; }
        if (i + 1 >= argc) { fprintf(stderr, "meter: %s needs a value\n", a); return 2; }
        const char *v = argv[++i];
        if (!strcmp(a, "--out")) out = v;
        else if (!strcmp(a, "--interval-ms")) interval = atol(v);
        else if (!strcmp(a, "--timeout")) timeout = atof(v);
        else if (!strcmp(a, "--join") && njoin < 8) join[njoin++] = v;
        else if (!strcmp(a, "--stat")) stat_fd = open_read(v);
        else if (!strcmp(a, "--prefix")) prefix = v;
        else if (!strcmp(a, "--zram")) zram_fd = open_read(v);
        else { fprintf(stderr, "meter: unknown option %s\n", a); return 2; }
    }
    if (!out || i + 1 >= argc) { fprintf(stderr, "meter: --out FILE ... -- COMMAND\n"); return 2; }
    char **cmd = argv + i + 1;

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == 1) return 125;
    struct sigaction sa = {.sa_handler = on_signal};
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);

    pid_t meter = getpid();
    uint64_t start = now_ns();
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != meter) _exit(125);
        for (int j = 0; j < njoin; j++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/cgroup.procs", join[j]);
            int fd = open(path, O_WRONLY | O_CLOEXEC);
            if (fd < 0 || write(fd, "0", 1) != 1) die(path);
            close(fd);
        }
        signal(SIGTERM, SIG_DFL);
        signal(SIGINT, SIG_DFL);
        signal(SIGHUP, SIG_DFL);
        execvp(cmd[0], cmd);
        fprintf(stderr, "meter: %s: %s\n", cmd[0], strerror(errno));
        _exit(127);
    }
    int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    if (pidfd < 0) { kill(child, SIGKILL); die("pidfd_open"); }

    struct peaks m = {0};
    char buf[65536];
    int timed_out = 0, killed = 0;
    uint64_t last = start, next = start;
    for (;;) {
        uint64_t t = now_ns(), s = 0, pool = 0;
        if (stat_fd >= 0 && read_all(stat_fd, buf, sizeof buf)) {
            uint64_t anon = field(buf, prefix, *prefix ? "rss" : "anon"), shmem = field(buf, prefix, "shmem");
            uint64_t lru = field(buf, prefix, "inactive_anon") + field(buf, prefix, "active_anon");
            uint64_t cached = field(buf, prefix, "swapcached");
            s = anon + shmem > lru ? anon + shmem : lru;
            if (anon > m.anon) m.anon = anon;
            if (shmem > m.shmem) m.shmem = shmem;
            if (lru > m.lru) m.lru = lru;
            if (cached > m.swapcached) m.swapcached = cached;
        }
        if (zram_fd >= 0 && read_all(zram_fd, buf, sizeof buf)) {
            unsigned long long a, b, used = 0;
            if (sscanf(buf, "%llu %llu %llu", &a, &b, &used) == 3) pool = used;
        }
        if (zswap_fd >= 0 && read_all(zswap_fd, buf, sizeof buf)) pool += 1024 * field(buf, "", "Zswap:");
        if (s > m.resident) m.resident = s;
        if (pool > m.pool) m.pool = pool;
        if (s + pool > m.total) m.total = s + pool;
        m.samples++;
        if (t - last > m.max_gap) m.max_gap = t - last;
        last = t;
        if (!killed && (stop || (timeout > 0 && t - start > timeout * 1e9))) {
            timed_out = !stop;
            killed = 1;
            kill_all(njoin ? join[0] : NULL, child);
        }
        next += (uint64_t)interval * 1000000;
        t = now_ns();
        if (next < t) next = t;
        struct pollfd pf = {.fd = pidfd, .events = POLLIN};
        struct timespec wait = {.tv_sec = (next - t) / 1000000000, .tv_nsec = (next - t) % 1000000000};
        if (ppoll(&pf, 1, &wait, NULL) > 0) break;
    }
    int status = 0;
    struct rusage ru;
    while (wait4(child, &status, 0, &ru) < 0 && errno == EINTR) {}
    uint64_t wall = now_ns() - start;
    FILE *f = fopen(out, "w");
    if (!f) die(out);
#define U(x) ((unsigned long long)(x))
    fprintf(f,
            "{\"wall_ns\":%llu,\"code\":%d,\"signal\":%d,\"timed_out\":%s,\"stopped\":%d,"
            "\"rusage_user_us\":%llu,\"rusage_sys_us\":%llu,\"maxrss_kib\":%ld,"
            "\"major_faults\":%ld,\"minor_faults\":%ld,"
            "\"peak_total\":%llu,\"peak_resident\":%llu,\"peak_pool\":%llu,\"peak_anon\":%llu,"
            "\"peak_shmem\":%llu,\"peak_lru_anon\":%llu,\"peak_swapcached\":%llu,"
            "\"samples\":%llu,\"max_gap_ns\":%llu}\n",
            U(wall), WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
            timed_out ? "true" : "false", (int)stop,
            U(ru.ru_utime.tv_sec) * 1000000 + U(ru.ru_utime.tv_usec),
            U(ru.ru_stime.tv_sec) * 1000000 + U(ru.ru_stime.tv_usec), ru.ru_maxrss, ru.ru_majflt, ru.ru_minflt,
            U(m.total), U(m.resident), U(m.pool), U(m.anon), U(m.shmem), U(m.lru), U(m.swapcached), U(m.samples),
            U(m.max_gap));
    if (fclose(f)) die(out);
    return stop ? 128 + stop : 0;
}
