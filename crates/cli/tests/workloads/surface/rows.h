// Rows of docs/kernel-surface.md. A program has one function for each row. It is called with memory that is filled and
// then evicted, uses the system call, and counts what is wrong. What it prints must be the same without memfit.
//
//     program list         the names of its rows
//     program NAME         runs one
#include "pages.h"
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

// AREA: the memory that a row works on. FRESH: what is filled to evict it; more than the budget.
enum { AREA = 4 << 20, HALF = AREA / 2, QUARTER = AREA / 4, FRESH = 24 << 20, SEED = 3, SECONDS = 150 };
enum { RW = PROT_READ | PROT_WRITE };

struct row {
    const char *name;
    // Returns how much was wrong, or REFUSED if this kernel or user cannot do it.
    size_t (*run)(uint64_t *area);
};

extern const struct row rows[];

// Pages of a range that are not in memory.
static inline size_t outside(const void *at, size_t bytes) {
    static int pagemap = -1;
    static pid_t of;
    static uint64_t entries[512];
    // A fork child inherits the descriptor, which shows its parent's pages.
    if (of != getpid()) {
        if (of) close(pagemap);
        MUST(pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
        of = getpid();
    }
    size_t count = 0, pages = bytes / PAGE;
    for (size_t done = 0; done < pages; done += 512) {
        size_t now = pages - done < 512 ? pages - done : 512;
        MUST(pread(pagemap, entries, now * 8, ((uintptr_t)at / PAGE + done) * 8));
        for (size_t i = 0; i < now; i++) count += !(entries[i] >> 63);
    }
    return count;
}

// Bytes that evict_some has mapped and unmapped.
static size_t unmapped_by_eviction;

// Fills new memory until so many pages of a range are outside. Returns at once without memfit.
static inline void evict_some(const void *at, size_t bytes, size_t least) {
    if (!preloaded_memfit()) return;
    for (int i = 0; i < 2000; i++) {
        if (outside(at, bytes) >= least) return;
        uint64_t *fresh = map(FRESH);
        fill(fresh, FRESH, i);
        munmap(fresh, FRESH);
        unmapped_by_eviction += FRESH;
    }
    printf("%zu of %zu pages were evicted\n", outside(at, bytes), bytes / PAGE);
    exit(4);
}

static inline void evict(const void *at, size_t bytes) {
    evict_some(at, bytes, bytes / PAGE * 3 / 4);
}

// Has memfit take all pages of this process, until all pages with these bytes are outside.
static inline void evict_all(const void *at, size_t bytes) {
    uintptr_t first = (uintptr_t)at & -PAGE, end = ((uintptr_t)at + bytes + PAGE - 1) & -PAGE;
    const char *preload = preloaded_memfit();
    if (!preload) return;
    char memfit[512], pid[16], *words[] = {memfit, "bg", pid, NULL}, *no_environment[] = {NULL};
    snprintf(memfit, sizeof memfit, "%.*smemfit", (int)(strstr(preload, "libmemfit.so") - preload), preload);
    snprintf(pid, sizeof pid, "%d", getpid());
    for (int i = 0; i < 100; i++) {
        if (outside((void *)first, end - first) == (end - first) / PAGE) return;
        posix_spawn_file_actions_t silent;
        posix_spawn_file_actions_init(&silent);
        posix_spawn_file_actions_addopen(&silent, 1, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_addopen(&silent, 2, "/dev/null", O_WRONLY, 0);
        pid_t child;
        if (posix_spawn(&child, memfit, &silent, NULL, words, no_environment)) exit(5);
        status_of(child);
        posix_spawn_file_actions_destroy(&silent);
    }
    printf("%zu of %zu pages were evicted\n", outside((void *)first, end - first), (end - first) / PAGE);
    exit(4);
}

// New memory, filled with a seed and evicted.
static inline uint64_t *evicted(size_t bytes, uint64_t seed) {
    uint64_t *p = map(bytes);
    fill(p, bytes, seed);
    evict(p, bytes);
    return p;
}

static inline void *byte_at(void *p, size_t bytes) {
    return (char *)p + bytes;
}

// Counts words of a part of a filled range that are not as they were filled.
static inline size_t check_part(const uint64_t *p, size_t from, size_t bytes, uint64_t seed) {
    size_t wrong = 0;
    for (size_t i = from / 8; i < (from + bytes) / 8; i++) wrong += p[i] != word(seed, i);
    return wrong;
}

// All but the middle half of an area.
static inline size_t check_around(const uint64_t *area) {
    return check_part(area, 0, AREA / 4, SEED) + check_part(area, AREA / 4 * 3, AREA / 4, SEED);
}

// A number of /proc/self/status, to that base.
static inline size_t of_status(const char *name, int base) {
    char line[256];
    size_t number = 0, length = strlen(name);
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, name, length) && line[length] == ':') number = strtoull(line + length + 1, NULL, base);
    if (status) fclose(status);
    return number;
}

// Whether this process has a right, by its number in linux/capability.h.
enum { IPC_LOCK = 14, SYS_PTRACE = 19 };
static inline int has_right(int number) {
    return of_status("CapEff", 16) >> number & 1;
}

// Tells a call's result: 0 or the name of its error.
static inline int told(const char *what, long result) {
    printf("%s: %s\n", what, result < 0 ? strerrorname_np(errno) : "done");
    return result < 0;
}

// An access that must raise SIGSEGV: returns its code, or 0 if there is none. The address must be right.
static sigjmp_buf after_fault;
static volatile int fault_code;
static void *volatile fault_at;
static inline void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    fault_code = info->si_code, fault_at = info->si_addr;
    siglongjmp(after_fault, 1);
}
static inline int faults(volatile char *at, int write) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before;
    MUST(sigaction(SIGSEGV, &action, &before));
    fault_code = 0;
    if (!sigsetjmp(after_fault, 1)) {
        if (write) *at = 1;
        else (void)*at;
    } else if (fault_at != at) {
        fault_code = -1;
    }
    MUST(sigaction(SIGSEGV, &before, NULL));
    return fault_code;
}

// Runs a function in a child of fork; returns its status.
#define IN_CHILD(what)                    \
    ({                                    \
        fflush(stdout);                   \
        pid_t child_ = fork();            \
        MUST(child_);                     \
        if (!child_) _exit((what) != 0);  \
        status_of(child_);                \
    })

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    for (const struct row *row = rows; row->name; row++) {
        if (!strcmp(argv[1], "list")) {
            puts(row->name);
        } else if (!strcmp(argv[1], row->name)) {
            alarm(SECONDS);
            size_t wrong = row->run(evicted(AREA, SEED));
            if (wrong == REFUSED) printf("%s: not possible here\n", row->name);
            else printf("%s: %zu wrong\n", row->name, wrong);
            return 0;
        }
    }
    return strcmp(argv[1], "list") ? 2 : 0;
}
