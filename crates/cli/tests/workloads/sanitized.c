// Fills 24 MiB, and checks it in another thread. For compilers' sanitizers, which have a shadow of all memory, and refuse
// mappings that they do not expect.
#include "pages.h"

enum { BYTES = 24 << 20 };

static void *look(void *memory) {
    return (void *)check(memory, BYTES, 1);
}

int main(void) {
    uint64_t *memory = malloc(BYTES);
    pthread_t thread;
    void *wrong;
    fill(memory, BYTES, 1);
    if (pthread_create(&thread, NULL, look, memory) || pthread_join(thread, &wrong)) return 2;
    free(memory);
    printf("%zu wrong\n", (size_t)wrong);
    return 0;
}
