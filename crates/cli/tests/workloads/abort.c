/* Fills memory and aborts. */
#include <stdlib.h>

int main(void) {
    enum { BYTES = 48 << 20 };
    char *memory = malloc(BYTES);
    for (int i = 0; i < BYTES; i++) memory[i] = i % 251;
    for (int i = 0; i < BYTES; i += 4096) memory[i]++;
    abort();
}
