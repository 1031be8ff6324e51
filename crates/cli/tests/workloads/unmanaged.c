// A program that memfit cannot page: it grows, stays for a moment so that it is noticed, and checks its memory.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(void) {
    enum { COUNT = 2 << 20 };
    unsigned *words = malloc(COUNT * sizeof *words), sum = 0;
    for (unsigned i = 0; i < COUNT; i++) words[i] = i * 2654435761u;
    struct timespec second = {1, 0};
    nanosleep(&second, NULL);
    for (unsigned i = 0; i < COUNT; i++) sum = sum * 31 + words[i];
    printf("%d bits: %x\n", (int)sizeof(void *) * 8, sum);
    return 0;
}
