// Rows of docs/limits.md: what a paged program can notice. Without memfit the kernel's answer is right here, and with
// memfit the one that the document gives.
#include "rows.h"
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/stat.h>

enum { PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS, GUARD_INSTALL = 102, GUARD_REMOVE = 103, SYS_MSEAL = 462 };

// Whether the kernel can take pages away by itself.
static int kernel_swaps(void) {
    char line[256];
    int lines = 0;
    FILE *swaps = fopen("/proc/swaps", "r");
    while (swaps && fgets(line, sizeof line, swaps)) lines++;
    if (swaps) fclose(swaps);
    return lines > 1;
}

// Counts what is wrong if the pages of a range should stay while others leave. Few may have left before.
static size_t stay(const void *at, size_t bytes, uint64_t *area) {
    size_t before = outside(at, bytes), wrong = check(area, AREA, SEED);
    evict(area, AREA);
    return wrong + (before > bytes / PAGE / 2) + (outside(at, bytes) != before);
}

static size_t without_access(uint64_t *area) {
    if (kernel_swaps()) return REFUSED;
    uint64_t *none = map(QUARTER);
    fill(none, QUARTER, 7);
    MUST(mprotect(none, QUARTER, PROT_NONE));
    size_t wrong = stay(none, QUARTER, area);
    MUST(mprotect(none, QUARTER, RW));
    return wrong + check(none, QUARTER, 7);
}

static size_t sealed_for_reading(uint64_t *area) {
    if (kernel_swaps()) return REFUSED;
    uint64_t *kept = map(QUARTER);
    fill(kept, QUARTER, 7);
    MUST(mprotect(kept, QUARTER, PROT_READ));
    if (syscall(SYS_MSEAL, kept, QUARTER, 0)) return REFUSED;
    size_t wrong = stay(kept, QUARTER, area);
    return wrong + check(kept, QUARTER, 7) + (faults((char *)kept, 1) != SEGV_ACCERR);
}

// Each kind of shared memory stays.
static size_t shared(uint64_t *area) {
    if (kernel_swaps()) return REFUSED;
    int id = shmget(IPC_PRIVATE, QUARTER, IPC_CREAT | 0600), file = memfd_create("kept", 0);
    MUST(id);
    MUST(ftruncate(file, QUARTER));
    void *kept[] = {mmap(NULL, QUARTER, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0), mmap(NULL, QUARTER, RW, MAP_SHARED, file, 0),
                    shmat(id, NULL, 0)};
    MUST(shmctl(id, IPC_RMID, NULL));
    for (int i = 0; i < 3; i++) {
        MUST((long)kept[i]);
        fill(kept[i], QUARTER, i + 7);
    }
    size_t wrong = 0;
    for (int i = 0; i < 3; i++) wrong += stay(kept[i], QUARTER, area) + outside(kept[i], QUARTER) + check(kept[i], QUARTER, i + 7);
    return wrong;
}

static size_t threads(uint64_t *area) {
    (void)area;
    return of_status("Threads", 10) != (preloaded_memfit() ? 2 : 1);
}

// Threads that libc's functions count by the links of /proc/self/task; 0 if they disagree.
static size_t by_links(void) {
    struct stat by_path, by_link, by_proc;
    struct statx extended;
    int proc = open("/proc", O_PATH | O_DIRECTORY);
    MUST(proc);
    MUST(stat("/proc/self/task", &by_path));
    MUST(lstat("/proc/self/task//", &by_link));
    MUST(fstatat(proc, "self/task/", &by_proc, 0));
    MUST(statx(proc, "self/task", 0, STATX_BASIC_STATS, &extended));
    close(proc);
    size_t links = by_path.st_nlink;
    return links == by_link.st_nlink && links == by_proc.st_nlink && links == extended.stx_nlink ? links - 2 : 0;
}

// Whether libc's function gives another link count than the kernel.
static size_t differs(const char *path) {
    struct stat libc, kernel;
    MUST(stat(path, &libc));
    MUST(bare(SYS_stat, (long)path, (long)&kernel, 0));
    return libc.st_nlink != kernel.st_nlink;
}

static void *wait_for_byte(void *end) {
    char byte;
    return (void *)(read(*(int *)end, &byte, 1) != 1 ? 1L : 0L);
}

// Chromium ends where a process has more threads than its own.
static size_t links_of_threads(uint64_t *area) {
    size_t wrong = (by_links() != 1) + (differs("/proc/self/task") != (preloaded_memfit() != NULL));
    for (int i = 0; i < 30; i++) wrong += IN_CHILD(by_links() != 1);
    // Its own threads count.
    int ends[2];
    pthread_t thread;
    void *failed;
    MUST(pipe(ends));
    if (pthread_create(&thread, NULL, wait_for_byte, ends)) exit(2);
    wrong += by_links() != 2;
    wrong += write(ends[1], "", 1) != 1 || pthread_join(thread, &failed) || failed;
    close(ends[0]);
    close(ends[1]);
    // Other directories keep their links, also of that name.
    MUST(mkdir("self", 0755));
    MUST(mkdir("self/task", 0755));
    MUST(mkdir("self/task/1", 0755));
    MUST(mkdir("self/task/2", 0755));
    MUST(chmod("self/task", 0555));
    wrong += differs("/proc/self") + differs("self/task");
    MUST(chmod("self/task", 0755));
    MUST(rmdir("self/task/1"));
    MUST(rmdir("self/task/2"));
    MUST(rmdir("self/task"));
    MUST(rmdir("self"));
    return wrong + check(area, AREA, SEED);
}

static size_t address_space(uint64_t *area) {
    (void)area;
    // The unmapped memory was a part of memfit's 16 GiB, or not: that depends on when the pager registered these.
    size_t kib = of_status("VmSize", 10) + (unmapped_by_eviction >> 10);
    return preloaded_memfit() ? kib < 16 << 20 || of_status("VmRSS", 10) > 64 << 10 : kib > 1 << 20;
}

static int new_userfaultfd(void) {
    int fd = syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API};
    return fd >= 0 && !ioctl(fd, UFFDIO_API, &api) ? fd : -1;
}

static size_t registered_by_a_bare_call(uint64_t *area) {
    int fd = new_userfaultfd();
    if (fd < 0) return REFUSED;
    struct uffdio_register range = {.range = {(uintptr_t)area, HALF}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    long result = bare(SYS_ioctl, fd, UFFDIO_REGISTER, (long)&range);
    return (result != (preloaded_memfit() ? -EBUSY : 0)) + check(area, AREA, SEED);
}

// UFFDIO_MOVE of Linux 6.8.
struct move {
    uint64_t dst, src, len, mode;
    int64_t moved;
};
#define MOVE _IOWR(UFFDIO, 0x05, struct move)

static size_t moved_out(uint64_t *area) {
    int fd = new_userfaultfd();
    if (fd < 0) return REFUSED;
    uint64_t *to = map(PAGE);
    struct uffdio_register range = {.range = {(uintptr_t)to, PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    MUST(ioctl(fd, UFFDIO_REGISTER, &range));
    evict_all(area, PAGE);
    struct move move = {.dst = (uintptr_t)to, .src = (uintptr_t)area, .len = PAGE};
    int result = ioctl(fd, MOVE, &move) ? errno : 0;
    if (result == EINVAL) return REFUSED;
    size_t wrong = result != (preloaded_memfit() ? ENOENT : 0);
    return wrong + check(result ? area : to, PAGE, SEED) + check_part(area, PAGE, AREA - PAGE, SEED);
}

static size_t guarded_by_a_bare_call(uint64_t *area) {
    evict_all(area, HALF);
    if (bare(SYS_madvise, (long)area, HALF, GUARD_INSTALL)) return REFUSED;
    size_t wrong = !faults((char *)area, 0);
    MUST(bare(SYS_madvise, (long)area, HALF, GUARD_REMOVE));
    wrong += preloaded_memfit() ? check_part(area, 0, HALF, SEED) : check_empty(area, HALF);
    return wrong + check_part(area, HALF, HALF, SEED);
}

// One that memfit has not found yet, before those that it has. What the call leaves is as it was.
static size_t several_moved_by_a_bare_call(uint64_t *area) {
    evict_all(area, HALF);
    uint64_t *to = map(AREA);
    int plain = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    MUST((intptr_t)mmap(area, QUARTER, PROT_READ | PROT_WRITE, plain, -1, 0));
    fill(area, QUARTER, 5);
    long moved = bare5(SYS_mremap, (long)area, AREA, AREA, MREMAP_MAYMOVE | MREMAP_FIXED, (long)to);
    if (moved == -EFAULT) return check_part(area, QUARTER, AREA - QUARTER, SEED);
    if (moved != (long)to) return 1;
    return check(to, QUARTER, 5) + check_part(to, QUARTER, AREA - QUARTER, SEED);
}

// Whether the limit of an ordinary user is below the address space, so that mlockall must fail.
static int above_the_limit(void) {
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_MEMLOCK, &limit));
    return !has_right(IPC_LOCK) && of_status("VmSize", 10) << 10 > limit.rlim_cur;
}

// libc's mlockall lets evicted pages outside; they come back when they are accessed, and stay.
static size_t locked_later(uint64_t *area) {
    if (kernel_swaps()) return REFUSED;
    if (mlockall(MCL_CURRENT)) return errno == EPERM ? REFUSED : errno != ENOMEM || !above_the_limit();
    size_t left = outside(area, AREA), wrong = preloaded_memfit() ? left < AREA / PAGE / 2 : left;
    wrong += check(area, AREA, SEED) + outside(area, AREA);
    MUST(munlockall());
    return wrong;
}

// A bare call brings all pages. Afterwards they can leave again.
static size_t locked_by_a_bare_call(uint64_t *area) {
    long result = bare(SYS_mlockall, MCL_CURRENT, 0, 0);
    if (result) return result == -EPERM ? REFUSED : result != -ENOMEM || !above_the_limit();
    size_t wrong = outside(area, AREA) + check(area, AREA, SEED);
    MUST(munlockall());
    evict(area, AREA);
    return wrong + check(area, AREA, SEED);
}

static size_t pipe_of_an_evicted_page(uint64_t *area) {
    int ends[2];
    MUST(pipe(ends));
    struct iovec part = {area, PAGE};
    if (vmsplice(ends[1], &part, 1, 0) != (long)PAGE) return REFUSED;
    evict_all(area, PAGE);
    fill(area, PAGE, SEED + 1);
    uint64_t *got = map(PAGE);
    if (read(ends[0], got, PAGE) != (long)PAGE) return 1;
    size_t wrong = check(got, PAGE, preloaded_memfit() ? SEED : SEED + 1);
    return wrong + check(area, PAGE, SEED + 1) + check_part(area, PAGE, AREA - PAGE, SEED);
}

// Debuggers read a process in this way.
static size_t read_by_its_file(uint64_t *area) {
    static char page[4096];
    int file = open("/proc/self/mem", O_RDONLY);
    MUST(file);
    evict_all(area, PAGE);
    long got = pread(file, page, PAGE, (off_t)(uintptr_t)area);
    size_t wrong = preloaded_memfit() ? got != -1 || errno != EIO : got != (long)PAGE;
    wrong += check(area, PAGE, SEED);
    return wrong + (pread(file, page, PAGE, (off_t)(uintptr_t)area) != (long)PAGE);
}

// The memory of a grandchild, more than the budget: paged only if the kernel reports no forks.
static size_t grandchild_fills(uint64_t *area) {
    uint64_t *own = map(FRESH);
    fill(own, FRESH, 9);
    int paged = preloaded_memfit() && !has_right(SYS_PTRACE);
    // Once it has grown. If it never is, alarm() of its grandparent ends the row.
    while (paged && !outside(own, FRESH)) usleep(10000);
    size_t wrong = paged || kernel_swaps() ? 0 : outside(own, FRESH);
    return wrong + check(own, FRESH, 9) + check(area, AREA, SEED);
}

static size_t grandchild(uint64_t *area) {
    return IN_CHILD(IN_CHILD(grandchild_fills(area)));
}

// A child of which libc does not know: served only if the kernel reports forks.
static size_t bare_child(uint64_t *area) {
    long child = bare(SYS_clone, SIGCHLD, 0, 0);
    if (!child) bare(SYS_exit_group, check(area, AREA, SEED) != 0, 0, 0);
    return (status_of(child) != (preloaded_memfit() && !has_right(SYS_PTRACE) ? -1 : 0)) + check(area, AREA, SEED);
}

const struct row rows[] = {
    {"limit-none", without_access},
    {"limit-mseal", sealed_for_reading},
    {"limit-shared", shared},
    {"limit-threads", threads},
    {"limit-task-links", links_of_threads},
    {"limit-address-space", address_space},
    {"limit-userfaultfd", registered_by_a_bare_call},
    {"limit-uffdio-move", moved_out},
    {"limit-guard", guarded_by_a_bare_call},
    {"limit-mremap-several", several_moved_by_a_bare_call},
    {"limit-mlockall", locked_later},
    {"mlockall-bare", locked_by_a_bare_call},
    {"limit-vmsplice", pipe_of_an_evicted_page},
    {"limit-proc-mem", read_by_its_file},
    {"limit-grandchild", grandchild},
    {"limit-bare-clone", bare_child},
    {NULL, NULL},
};
