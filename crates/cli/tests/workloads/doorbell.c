// A page by whose fault the stub tells the pager of a fork can be there before the stub touches it. "read": a thread reads all
// small mappings without pause, as a program does that looks for pointers, while another one forks. "drop": a third thread
// drops memory meanwhile, as an allocator does. "lock": what looks like these pages is locked, as by mlockall, so that the
// stub cannot empty them by MADV_DONTNEED. "replace": something else is mapped there.
#include "pages.h"
#include <sys/syscall.h>
#include <sys/uio.h>

enum { PART = 24, CHILDS = 2, ROUNDS = 24, MAPPINGS = 256, COLD = 16 };

static volatile int done;

// The mappings, from /proc/self/maps: private, readable, without a file, of at most a mebibyte.
static int small_mappings(struct iovec *found) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], access[5];
    int count = 0;
    while (maps && count < MAPPINGS && fgets(line, sizeof line, maps)) {
        size_t start, end, offset, inode;
        if (sscanf(line, "%zx-%zx %4s %zx %*s %zu", &start, &end, access, &offset, &inode) != 5) continue;
        if (access[0] == 'r' && access[3] == 'p' && !inode && end - start <= MIB && !strchr(line, '['))
            found[count++] = (struct iovec){(void *)start, end - start};
    }
    if (maps) fclose(maps);
    return count;
}

static void *reader(void *unused) {
    static char copy[MIB];
    struct iovec found[MAPPINGS];
    for (int round = 0, count = 0; !done; round++) {
        if (round % 64 == 0) count = small_mappings(found);
        for (int i = 0; i < count; i++) process_vm_readv(getpid(), &(struct iovec){copy, MIB}, 1, &found[i], 1, 0);
    }
    return unused;
}

// Drops a mapping that nobody uses, piece by piece; fills it again when nothing is left.
static void *dropper(void *cold) {
    const size_t piece = 16 * PAGE;
    while (!done) {
        for (char *at = cold; !done && at < (char *)cold + COLD * MIB; at += piece) {
            MUST(madvise(at, piece, MADV_DONTNEED));
            usleep(300);
        }
        fill(cold, COLD * MIB, 1);
    }
    return NULL;
}

// Calls a function for what looks like the stub's two pages: the stub's mappings are in a quarter of a tebibyte below those of
// the kernel. Returns for how many it succeeded.
static int with_doorbells(int (*call)(struct iovec)) {
    const uintptr_t FAR = 0x7e9000000000, FAR_END = 0x7ed000000000;
    struct iovec found[MAPPINGS];
    int worked = 0;
    for (int i = 0, count = small_mappings(found); i < count; i++) {
        uintptr_t at = (uintptr_t)found[i].iov_base;
        worked += found[i].iov_len == 2 * PAGE && at >= FAR && at < FAR_END && !call(found[i]);
    }
    return worked;
}

static int lock(struct iovec pages) {
    return bare(SYS_mlock2, (long)pages.iov_base, pages.iov_len, MLOCK_ONFAULT);
}

static int replace(struct iovec pages) {
    const int FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE;
    return mmap(pages.iov_base, pages.iov_len, PROT_READ | PROT_WRITE, FLAGS, -1, 0) == MAP_FAILED;
}

static int is_locked(struct iovec pages) {
    // Locked pages cannot be emptied like this.
    return !madvise(pages.iov_base, pages.iov_len, MADV_DONTNEED);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    int drops = !strcmp(mode, "drop"), reads = drops || !strcmp(mode, "read");
    int locks = !strcmp(mode, "lock"), replaces = !strcmp(mode, "replace");
    uint64_t *part = map(PART * MIB);
    pthread_t threads[2];
    size_t wrong = 0;
    fill(part, PART * MIB, 0);
    if (drops) {
        uint64_t *cold = map(COLD * MIB);
        fill(cold, COLD * MIB, 1);
        wait_until_paged((PART + COLD) * MIB);
        start_threads(&threads[1], 1, dropper, (uintptr_t)cold);
    }
    if (reads) {
        start_threads(threads, 1, reader, 0);
    } else {
        // The stub has these pages once the process is paged.
        wait_until_paged(PART * MIB);
        if (!with_doorbells(locks ? lock : replace) && preloaded_memfit()) printf("there is no doorbell\n"), wrong++;
    }
    for (int i = 0; i < ROUNDS; i++) {
        pid_t pid = fork();
        MUST(pid);
        if (!pid) _exit(check(part, CHILDS * MIB, i) != 0);
        int status = status_of(pid);
        // Nobody announces a child without a doorbell, so it lacks paged memory. On a busy machine it may be unknown whether
        // memory was dropped before a fork.
        if (status < 0 && drops) status = 0;
        if (status && !replaces) printf("round %d: the child %s\n", i, status < 0 ? "was killed" : "is wrong"), wrong++;
        fill(part, PART * MIB, i + 1);
    }
    done = 1;
    if (reads) join_threads(threads, 1 + drops);
    if (locks && !with_doorbells(is_locked) && preloaded_memfit()) printf("the doorbell is locked no more\n"), wrong++;
    printf("wrong: %zu\n", wrong + check(part, PART * MIB, ROUNDS));
    return wrong != 0;
}
