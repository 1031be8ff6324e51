/* many COUNT COMMAND...: that many at once; the time until the last one has ended. */
#include "common.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
    uint64_t count = arg_u64(argc, argv, 1, 0);
    int failed = 0, status;
    if (argc < 3 || !count) return 2;
    double start = seconds();
    for (uint64_t i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid < 0) { perror("fork"); return 1; }
        if (pid == 0) {
            /* Their own times would be taken for ours. */
            dup2(STDERR_FILENO, STDOUT_FILENO);
            execvp(argv[2], argv + 2);
            perror(argv[2]);
            _exit(127);
        }
    }
    while (wait(&status) > 0) failed |= status != 0;
    measured(start);
    return failed;
}
