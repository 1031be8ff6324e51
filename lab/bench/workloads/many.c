/* many PROCESSES MIB OPS: as many processes as said fill MIB together. When all are full, they do OPS random page
 * operations together, each on its own pages, and verify all. The sum does not depend on the order. */
#define _GNU_SOURCE
#include "pages.h"
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct shared { pthread_barrier_t full; _Atomic uint64_t sum; };

static struct shared *map_shared(int fd) {
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) { perror("mmap"); exit(1); }
    return shared;
}

/* One process: the index shifts its contents. */
static int work(struct shared *shared, uint64_t index, uint64_t pages, uint64_t ops) {
    unsigned char *mem = pages_map(pages);
    uint32_t *versions = calloc(pages, sizeof *versions);
    uint64_t shift = index << 32, s = mix64(index), sum = index;
    for (uint64_t p = 0; p < pages; p++) page_store(mem + p * PAGE, p + shift, 0);
    pthread_barrier_wait(&shared->full);
    for (uint64_t i = 0; i < ops; i++) {
        s = mix64(s);
        uint64_t p = (s >> 20) % pages;
        sum += page_check(mem + p * PAGE, p + shift, versions[p]) * (i | 1);
        page_store(mem + p * PAGE, p + shift, ++versions[p]);
    }
    for (uint64_t p = 0; p < pages; p++) sum = mix64(sum ^ page_check(mem + p * PAGE, p + shift, versions[p]));
    shared->sum += sum;
    return 0;
}

int main(int argc, char **argv) {
    uint64_t processes = arg_u64(argc, argv, 1, 2), mib = arg_u64(argc, argv, 2, 64), ops = arg_u64(argc, argv, 3, 10000);
    uint64_t own = mib * 256 / (processes ? processes : 1), each = ops / (processes ? processes : 1);
    /* A process of its own: it gets its index and the descriptor of what all share besides. */
    if (argc > 4) return work(map_shared(arg_u64(argc, argv, 5, 0)), arg_u64(argc, argv, 4, 0), own, each);
    if (argc < 4 || !own) { fprintf(stderr, "bad arguments\n"); return 2; }
    int fd = memfd_create("many", 0);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared))) { perror("memfd_create"); return 1; }
    struct shared *shared = map_shared(fd);
    pthread_barrierattr_t across;
    pthread_barrierattr_init(&across);
    pthread_barrierattr_setpshared(&across, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->full, &across, processes);
    for (uint64_t i = 0; i < processes; i++) {
        char index[24], descriptor[24];
        snprintf(index, sizeof index, "%llu", (unsigned long long)i);
        snprintf(descriptor, sizeof descriptor, "%d", fd);
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* if another one fails, the others would wait for it */
            execl("/proc/self/exe", argv[0], argv[1], argv[2], argv[3], index, descriptor, NULL);
            _exit(127);
        }
        if (pid < 0) { perror("fork"); return 1; }
    }
    for (int status; wait(&status) > 0;) {
        if (status != 0) { fprintf(stderr, "a process failed\n"); return 1; }
    }
    printf("many %016llx\n", (unsigned long long)shared->sum);
    return 0;
}
