/* randrw MIB OPS [THREADS [WRITE_PCT [SEED [PROCESSES]]]]
 * Fill, then OPS random page operations: verify the whole page and, for
 * WRITE_PCT of them, write its next version. At the end verify everything.
 * Thread t owns the pages p with p % THREADS == t, so the result is fixed.
 * Several processes share MIB and OPS. All are full before the first goes on. */
#define _GNU_SOURCE
#include "pages.h"
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char *mem;
static uint32_t *versions;
static uint64_t pages, ops, threads, write_pct, seed, processes;

/* What several processes share, in a memfd that they inherit. */
static struct shared { pthread_barrier_t full; _Atomic uint64_t sum; } *shared;

static void map_shared(int fd) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) { perror("mmap"); exit(1); }
}

/* Starts the processes, each with its index and the memfd as further arguments. */
static int start_processes(char **argv) {
    int fd = memfd_create("randrw", 0);
    if (fd < 0 || ftruncate(fd, sizeof *shared)) { perror("memfd_create"); return 1; }
    map_shared(fd);
    pthread_barrierattr_t across;
    pthread_barrierattr_init(&across);
    pthread_barrierattr_setpshared(&across, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->full, &across, processes);
    for (uint64_t i = 0; i < processes; i++) {
        char more[2][24];
        snprintf(more[0], sizeof more[0], "%llu", (unsigned long long)i);
        snprintf(more[1], sizeof more[1], "%d", fd);
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* if one fails, the others would wait for it */
            execl("/proc/self/exe", argv[0], argv[1], argv[2], argv[3], argv[4], argv[5], argv[6], more[0], more[1], NULL);
            _exit(127);
        }
        if (pid < 0) { perror("fork"); return 1; }
    }
    for (int status; wait(&status) > 0;) {
        if (status != 0) { fprintf(stderr, "a process failed\n"); return 1; }
    }
    printf("randrw %016llx\n", (unsigned long long)shared->sum);
    return 0;
}

struct part { pthread_t id; uint64_t t, sum; };

static void *work(void *arg) {
    struct part *me = arg;
    uint64_t own = (pages - me->t + threads - 1) / threads;
    uint64_t n = ops / threads + (me->t < ops % threads), s = mix64(seed ^ (me->t << 48));
    for (uint64_t i = 0; i < n; i++) {
        s = mix64(s);
        uint64_t p = ((s >> 20) % own) * threads + me->t;
        me->sum += page_check(mem + p * PAGE, p, versions[p]) * (i | 1);
        if (s % 100 < write_pct) page_store(mem + p * PAGE, p, ++versions[p]);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pages = arg_u64(argc, argv, 1, 400) * 256;
    ops = arg_u64(argc, argv, 2, 1000000);
    threads = arg_u64(argc, argv, 3, 1);
    write_pct = arg_u64(argc, argv, 4, 100);
    seed = arg_u64(argc, argv, 5, 1);
    processes = arg_u64(argc, argv, 6, 1);
    if (!threads || threads > 64 || !processes || pages / processes < threads) { fprintf(stderr, "bad arguments\n"); return 2; }
    if (processes > 1 && argc == 7) return start_processes(argv);
    pages /= processes;
    ops /= processes;
    if (processes > 1) {
        seed += arg_u64(argc, argv, 7, 0);
        map_shared(arg_u64(argc, argv, 8, 0));
    }
    mem = pages_map(pages);
    versions = calloc(pages, sizeof *versions);
    struct part part[64] = {0};
    for (uint64_t p = 0; p < pages; p++) page_store(mem + p * PAGE, p, 0);
    if (shared) pthread_barrier_wait(&shared->full);
    for (uint64_t t = 1; t < threads; t++) {
        part[t].t = t;
        if (pthread_create(&part[t].id, NULL, work, &part[t])) { perror("pthread_create"); return 1; }
    }
    work(&part[0]);
    uint64_t sum = part[0].sum;
    for (uint64_t t = 1; t < threads; t++) { pthread_join(part[t].id, NULL); sum += mix64(part[t].sum + t); }
    for (uint64_t p = 0; p < pages; p++) sum = mix64(sum ^ page_check(mem + p * PAGE, p, versions[p]));
    if (shared) shared->sum += sum;
    else printf("randrw %016llx\n", (unsigned long long)sum);
    return 0;
}
