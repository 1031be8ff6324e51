/* textgen MIB [SEED]: seeded text on stdout, the input of the sort workload.
 * Lines of a log, the words first so that sorting moves them; about 75 bytes each. */
#include "pages.h"

int main(int argc, char **argv) {
    uint64_t left = arg_u64(argc, argv, 1, 64) << 20, s = mix64(arg_u64(argc, argv, 2, 1));
    static char word[4096][16];
    for (unsigned i = 0; i < 4096; i++) {
        uint64_t x = mix64(i + 77);
        unsigned n = 3 + x % 8, j;
        for (j = 0; j < n; j++) { x = mix64(x); word[i][j] = (j & 1 ? "aeiouy" : "bdklmnprst")[x % (j & 1 ? 6 : 10)]; }
    }
    while (left) {
        char line[160];
        s = mix64(s);
        int n = snprintf(line, sizeof line, "%s %s 2024-05-%02u level=%s module=%s status=%u request completed\n",
                         word[s & 4095], word[s >> 12 & 255], 1 + (unsigned)(s >> 24) % 28,
                         (s >> 32 & 7) ? "info" : "warning", word[s >> 36 & 31], 200 + (unsigned)(s >> 48 & 3));
        if ((uint64_t)n > left) n = (int)left;
        if (fwrite(line, 1, n, stdout) != (size_t)n) { perror("write"); return 1; }
        left -= n;
    }
    return fclose(stdout) != 0;
}
