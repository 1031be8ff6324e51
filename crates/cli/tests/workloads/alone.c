// A program of one thread: how many threads its process has, and calls that the kernel allows only to such a process. "first"
// makes them before the program fills memory, "last" after that was paged out.
#include "pages.h"
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { OTHER = 60 };

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

static void say(const char *what, long result) {
    printf("%s: %s\n", what, result < 0 ? strerror(errno) : "done");
}

static void threads(void) {
    struct stat task;
    MUST(stat("/proc/self/task", &task));
    printf("threads: %d\n", (int)task.st_nlink - 2);
}

static void alone(void) {
    say("unshare memory, signals, threads", unshare(CLONE_VM | CLONE_SIGHAND | CLONE_THREAD));
    int here = open("/proc/self/ns/time", O_RDONLY);
    if (here >= 0) say("enter a time namespace", setns(here, CLONE_NEWTIME));
    say("the same by the system call", here < 0 ? 0 : syscall(SYS_setns, here, CLONE_NEWTIME));
    pid_t child = fork();
    MUST(child);
    if (!child) {
        say("enter a user namespace", unshare(CLONE_NEWUSER));
        fflush(stdout);
        _exit(0);
    }
    MUST(waitpid(child, NULL, 0));
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IONBF, 0);
    int first = argc > 1 && !strcmp(argv[1], "first");
    if (first) {
        threads();
        alone();
        threads();
    }
    uint64_t *other = map(OTHER * MIB);
    fill(other, OTHER * MIB, 1);
    wait_until_paged(OTHER * MIB);
    printf("wrong: %zu\n", check(other, OTHER * MIB, 1));
    if (!first) {
        alone();
        threads();
        printf("wrong: %zu\n", check(other, OTHER * MIB, 1));
    }
    return 0;
}
