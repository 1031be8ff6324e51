// Forks again and again; each child checks some pages that its parent has filled, most of which are evicted. Argument: MiB. A
// process that finds a wrong page says so. Ends when a child ends badly.
#include "pages.h"

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? (size_t)atoi(argv[1]) : 40) * MIB, words = bytes / 8;
    uint64_t *p = map(bytes);
    fill(p, bytes, 1);
    if (check(p, bytes, 1)) return 8;
    if (write(1, "full\n", 5) != 5) return 8;
    for (uint64_t round = 1;; round++) {
        pid_t child = fork();
        MUST(child);
        if (!child) {
            for (uint64_t k = 0; k < 32; k++) {
                size_t at = (round * 7919 + k * 104729) * 512 % words;
                if (p[at] != word(1, at) && write(1, "wrong\n", 6) == 6) _exit(9);
            }
            _exit(0);
        }
        if (status_of(child)) return 7;
    }
}
