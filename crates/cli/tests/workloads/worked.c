// Memory of which a known part is used again and again at random, and the rest never: worked USED_MIB REST_MIB. It ends with
// status 7.
#include "pages.h"

enum { ROUNDS = 8 };

int main(int count, char **words) {
    if (count < 3) return 2;
    size_t used = atoi(words[1]) * MIB, rest = atoi(words[2]) * MIB, pages = used / PAGE, wrong = 0;
    uint64_t *idle = map(rest), *p = map(used);
    fill(idle, rest, 1);
    fill(p, used, 2);
    uint64_t state = 88172645463325252u;
    for (int round = 0; round < ROUNDS; round++) {
        usleep(300000);
        for (size_t i = 0; i < pages; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            size_t at = (state >> 33) % pages * 512;
            wrong += p[at] != word(2, at);
        }
    }
    printf("%zu wrong\n", wrong);
    return wrong ? 1 : 7;
}
