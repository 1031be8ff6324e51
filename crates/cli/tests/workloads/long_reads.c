// Fills memory by one call that stays inside of the kernel: "read", "pread", "readv", "preadv", "fread"; "bare", a read by a
// bare system call; or "populate", which then writes the words itself. FILE has words that are their own numbers ("make" makes it); all of them are checked twice.
#include "pages.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { BYTES = 256 * (1 << 20) };

// Where the stack of memfit's thread is; 0 if there is no such thread. It must be the one that the pager knows of: any other
// memory of the process is evicted. The pager knows of that which is far from the mappings of programs.
static uint64_t stack_of_stub(void) {
    char name[300], text[256];
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));) {
        for (int tries = 0; tries < 10000; tries++) {
            snprintf(name, sizeof name, "/proc/self/task/%s/comm", task->d_name);
            FILE *comm = fopen(name, "r");
            int is_stub = comm && fgets(text, sizeof text, comm) && !strcmp(text, "memfit-stub\n");
            if (comm) fclose(comm);
            if (!is_stub) break;
            // It shows nothing while the thread runs.
            snprintf(name, sizeof name, "/proc/self/task/%s/syscall", task->d_name);
            FILE *call = fopen(name, "r");
            if (call && fgets(text, sizeof text, call) && strchr(text, ' ')) {
                fclose(call);
                *strrchr(text, ' ') = 0;
                return strtoull(strrchr(text, ' ') + 1, NULL, 16);
            }
            if (call) fclose(call);
            usleep(1000);
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *how = argv[1];
    if (!strcmp(how, "make")) {
        FILE *file = fopen(argv[2], "w");
        for (uint64_t i = 0; i < BYTES / sizeof i; i++)
            if (fwrite(&i, sizeof i, 1, file) != 1) return 3;
        return fclose(file) != 0;
    }
    int populate = strcmp(how, "populate") ? 0 : MAP_POPULATE;
    uint64_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | populate, -1, 0);
    if (memory == MAP_FAILED) return 4;
    int fd = open(argv[2], O_RDONLY);
    MUST(fd);
    ssize_t got = BYTES;
    if (!strcmp(how, "read")) got = read(fd, memory, BYTES);
    if (!strcmp(how, "pread")) got = pread(fd, memory, BYTES, 0);
    struct iovec parts[2] = {{memory, BYTES / 2}, {(char *)memory + BYTES / 2, BYTES / 2}};
    if (!strcmp(how, "readv")) got = readv(fd, parts, 2);
    if (!strcmp(how, "preadv")) got = preadv(fd, parts, 2, 0);
    if (!strcmp(how, "bare")) got = bare(SYS_read, fd, (long)memory, BYTES);
    if (!strcmp(how, "fread")) got = (ssize_t)(fread(memory, sizeof *memory, BYTES / sizeof *memory, fdopen(fd, "r")) * sizeof *memory);
    if (populate)
        for (uint64_t i = 0; i < BYTES / sizeof i; i++) memory[i] = i;
    // It is above the budget until memfit gets a CPU.
    if (populate || !strcmp(how, "bare")) wait_until_paged(BYTES);
    size_t wrong = 0;
    for (int round = 0; round < 2; round++)
        for (uint64_t i = 0; i < BYTES / sizeof i; i++) wrong += memory[i] != i;
    uint64_t stack = stack_of_stub();
    // `FAR` in the stub's sys.rs.
    if (stack && (stack < 0x7e9000000000 || stack >= 0x7ee000000000)) printf("memfit's thread has its stack at %#lx\n", stack);
    printf("%zd bytes, wrong: %zu\n", got, wrong);
    return wrong != 0;
}
