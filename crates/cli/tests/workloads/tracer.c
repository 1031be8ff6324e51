// A child that its parent allows to trace it (PR_SET_PTRACER) stops it again and again and reads its memory: each word is
// right, or refused with EIO where the page is evicted. process_vm_readv gets all of it.
#include "pages.h"
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

enum { BYTES = 64 * (1 << 20), STOPS = 20 };

static uint64_t *memory;
static size_t wrong, refused;

static void look(pid_t parent, size_t page) {
    size_t i = page * 512 + page % 512;
    errno = 0;
    uint64_t seen = ptrace(PTRACE_PEEKDATA, parent, memory + i, 0);
    if (errno) {
        wrong += errno != EIO;
        refused++;
        MUST(process_vm_readv(parent, &(struct iovec){&seen, 8}, 1, &(struct iovec){memory + i, 8}, 1, 0));
    }
    wrong += seen != word(1, i);
    // Writes back what is there.
    if (page % 8 == 0 && ptrace(PTRACE_POKEDATA, parent, memory + i, seen)) wrong += errno != EIO, refused++;
}

static int trace(pid_t parent) {
    int status;
    MUST(ptrace(PTRACE_SEIZE, parent, 0, PTRACE_O_TRACESYSGOOD));
    for (size_t stop = 0; stop < STOPS; stop++) {
        usleep(10000);
        MUST(ptrace(PTRACE_INTERRUPT, parent, 0, 0));
        MUST(waitpid(parent, &status, __WALL));
        if (!WIFSTOPPED(status)) return 3;
        for (size_t k = 0; k < 300; k++) look(parent, (k * 53 + stop * 11) % (BYTES / PAGE));
        MUST(ptrace(PTRACE_CONT, parent, 0, 0));
    }
    MUST(ptrace(PTRACE_INTERRUPT, parent, 0, 0));
    MUST(waitpid(parent, &status, __WALL));
    MUST(ptrace(PTRACE_DETACH, parent, 0, 0));
    FILE *file = fopen("refused", "w");
    fprintf(file, "%zu", refused);
    fclose(file);
    return wrong != 0;
}

int main(void) {
    int go[2], end[2];
    char byte = 0;
    memory = map(BYTES);
    pid_t parent = getpid();
    MUST(pipe(go));
    MUST(pipe(end));
    pid_t child = fork();
    MUST(child);
    if (!child) {
        MUST(read(go[0], &byte, 1));
        int result = trace(parent);
        MUST(write(end[1], &byte, 1));
        return result;
    }
    prctl(PR_SET_PTRACER, child);
    fill(memory, BYTES, 1);
    MUST(write(go[1], &byte, 1));
    MUST(fcntl(end[0], F_SETFL, O_NONBLOCK));
    while (read(end[0], &byte, 1) != 1) wrong += check(memory, BYTES, 1);
    int status = status_of(child);
    wrong += check(memory, BYTES, 1);
    printf("child: %d, wrong: %zu\n", status, wrong);
    return wrong != 0;
}
