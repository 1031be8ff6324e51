// Executes itself again and again, wherever the pager has it load libmemfit.so just then, and then fills and checks more and
// more memory, for which it limits its address space meanwhile.
#include "pages.h"
#include <sys/resource.h>

enum { EXECS = 150, PART = 24, PARTS = 6 };
static const rlim_t GIB = 1 << 30;

int main(int argc, char **argv) {
    int left = argc > 1 ? atoi(argv[1]) : EXECS;
    uint64_t *parts[PARTS];
    if (left) {
        char next[16];
        fill(map(MIB), MIB, 1);
        usleep(left * 2 % 11 * 700);
        snprintf(next, sizeof next, "%d", left - 1);
        execl("/proc/self/exe", argv[0], next, NULL);
        return 3;
    }
    size_t wrong = 0;
    for (int round = 0; round < PARTS; round++) {
        if (round == PARTS / 2) MUST(setrlimit(RLIMIT_AS, &(struct rlimit){GIB, GIB}));
        parts[round] = map(PART * MIB);
        fill(parts[round], PART * MIB, round);
        usleep(100000);
        for (int i = 0; i <= round; i++) wrong += check(parts[i], PART * MIB, i);
    }
    printf("wrong: %zu\n", wrong);
    return wrong != 0;
}
