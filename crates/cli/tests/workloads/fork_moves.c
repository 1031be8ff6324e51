// Threads unmap, map and move their memory all the time, also while one of them forks. Each child checks what its thread had,
// and every thread what it has.
#include "pages.h"
#include <sys/syscall.h>

enum { THREADS = 4, BLOCKS = 32, BLOCK_PAGES = 64, ROUNDS = 300 };

static volatile size_t forks;

static void *changer(void *argument) {
    uint64_t x = (uintptr_t)argument, *block[BLOCKS], seed[BLOCKS];
    size_t bytes = BLOCK_PAGES * PAGE, wrong = 0;
    for (int i = 0; i < BLOCKS; i++) fill(block[i] = map(bytes), bytes, seed[i] = next(&x));
    for (int round = 0; round < ROUNDS; round++) {
        int i = next(&x) % BLOCKS;
        uint64_t *at = block[i];
        switch (next(&x) % 6) {
            case 0:
                MUST(munmap(at, bytes));
                at = map(bytes);
                wrong += check_empty(at, bytes);
                fill(at, bytes, ++seed[i]);
                break;
            case 1:
                MUST(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
                wrong += check_empty(at, bytes);
                fill(at, bytes, ++seed[i]);
                break;
            case 2:
            case 3: {
                // Often to the place where another thread has just unmapped something.
                char *to = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                MUST((intptr_t)to);
                wrong += (char *)mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to;
                at = (uint64_t *)to;
                break;
            }
            case 4: {
                if (next(&x) % 4) break;
                pid_t child = fork();
                MUST(child);
                if (!child) {
                    size_t bad = 0;
                    for (int k = 0; k < BLOCKS; k++) bad += check(block[k], bytes, seed[k]);
                    fill(at, bytes, 3);
                    _exit(bad + check(at, bytes, 3) != 0);
                }
                __sync_fetch_and_add(&forks, 1);
                int status = status_of(child);
                if (status) printf("a child: %s\n", status < 0 ? "killed" : "wrong"), wrong++;
            }
        }
        block[i] = at;
        i = next(&x) % BLOCKS;
        wrong += check(block[i], bytes, seed[i]);
    }
    for (int i = 0; i < BLOCKS; i++) wrong += check(block[i], bytes, seed[i]);
    return (void *)wrong;
}

int main(void) {
    pthread_t threads[THREADS];
    start_threads(threads, THREADS, changer, 17);
    size_t wrong = join_threads(threads, THREADS);
    printf("wrong: %zu, forked: %d\n", wrong, forks > 15);
    return wrong != 0;
}
