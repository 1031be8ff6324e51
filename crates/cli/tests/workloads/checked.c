// Fills MIB of memory and checks it, again and again: at least ROUNDS times after the process is paged, which has a
// thread more then. Gives up after a minute in which it is not. A further argument is a file that it removes first.
#include "pages.h"
#include <dirent.h>
#include <time.h>

static int is_paged(void) {
    int tasks = 0;
    DIR *all = opendir("/proc/self/task");
    if (!all) return 0;
    for (struct dirent *task; (task = readdir(all));) tasks += task->d_name[0] != '.';
    closedir(all);
    return tasks > 1;
}

int main(int argc, char **argv) {
    size_t bytes = atol(argv[1]) * MIB, wrong = 0;
    if (argc > 3) MUST(unlink(argv[3]));
    uint64_t *memory = map(bytes);
    time_t end = time(NULL) + 60;
    for (int round = 0, paged = 0; paged < atoi(argv[2]) && time(NULL) < end; round++) {
        fill(memory, bytes, round);
        wrong += check(memory, bytes, round);
        paged += is_paged();
    }
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
