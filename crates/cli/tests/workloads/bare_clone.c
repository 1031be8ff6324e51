/* A child made by the bare system call, which no library function sees. It may die; what it reads must be right. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    enum { PAGES = 20480 };
    uint64_t(*memory)[512] = mmap(0, 4096ul * PAGES, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 5; round++) {
        for (int page = 0; page < PAGES; page++)
            for (int i = 0; i < 512; i++) memory[page][i] = page * 1000 + i + 1;
        if (round == 3) {
            /* The program itself keeps the memory from children, and gives it to them again. */
            madvise(memory, 4096ul * PAGES, MADV_DONTFORK);
            madvise(memory, 4096ul * PAGES, MADV_DOFORK);
        }
        long pid;
        register long tls __asm__("r8") = 0, parent __asm__("r10") = 0;
        __asm__ volatile("syscall" : "=a"(pid) : "a"(SYS_clone), "D"((long)SIGCHLD), "S"(0l), "d"(0l), "r"(parent), "r"(tls)
                         : "rcx", "r11", "memory");
        if (pid == 0) {
            int wrong = 0;
            for (int page = 0; page < PAGES; page++) wrong |= memory[page][page % 512] != page * 1000 + page % 512 + 1u;
            syscall(SYS_exit_group, wrong ? 9 : 0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        int fine = WIFSIGNALED(status) || WEXITSTATUS(status) == 0;
        printf("round %d: %s\n", round, fine ? "right or dead" : "WRONG");
    }
    for (int page = 0; page < PAGES; page++)
        if (memory[page][7] != page * 1000 + 8u) return puts("WRONG in the parent"), 1;
    return 0;
}
