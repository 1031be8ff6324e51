// starts COUNT MIB: starts COUNT programs at once. Each fills MIB, waits until all have, and checks
// it.
#include "pages.h"
#include <spawn.h>

extern char **environ;

// The descriptors of one of the programs: it writes a byte when it has filled its memory, and reads
// until all have.
enum { FULL = 3, ALL_FULL = 4 };

static int run(size_t bytes, int number) {
    uint64_t *memory = map(bytes);
    fill(memory, bytes, number + 1);
    MUST(write(FULL, "f", 1));
    MUST(read(ALL_FULL, &(char){0}, 1));
    return check(memory, bytes, number + 1) != 0;
}

int main(int argc, char **argv) {
    if (argc == 4) return run(atoi(argv[2]) * MIB, atoi(argv[3]));
    int count = atoi(argv[1]), wrong = 0, status, full[2], all_full[2];
    MUST(pipe2(full, O_CLOEXEC));
    MUST(pipe2(all_full, O_CLOEXEC));
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    // Not over those that are copied next.
    int high[2] = {fcntl(full[1], F_DUPFD_CLOEXEC, 10), fcntl(all_full[0], F_DUPFD_CLOEXEC, 10)};
    MUST(high[0]);
    MUST(high[1]);
    posix_spawn_file_actions_adddup2(&files, high[0], FULL);
    posix_spawn_file_actions_adddup2(&files, high[1], ALL_FULL);
    for (int i = 0; i < count; i++) {
        char number[12];
        snprintf(number, sizeof number, "%d", i);
        char *own[] = {argv[0], argv[1], argv[2], number, NULL};
        pid_t pid;
        if (posix_spawn(&pid, "/proc/self/exe", &files, NULL, own, environ)) return 2;
    }
    // If one of them fails, the read below ends.
    close(full[1]);
    close(high[0]);
    for (int i = 0; i < count; i++) MUST(read(full[0], &(char){0}, 1));
    close(all_full[1]);
    while (wait(&status) > 0) wrong += status != 0;
    printf("wrong: %d of %d\n", wrong, count);
    return wrong;
}
