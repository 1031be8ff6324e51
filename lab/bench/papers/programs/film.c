/* film FRAMES SHOWS: decodes a film of 320 x 240 into memory with Floyd-Steinberg dithering to a palette of 6 x 6 x 6, then
 * shows it SHOWS times in order. */
#include "common.h"
#include <math.h>

enum { WIDTH = 320, HEIGHT = 240, FRAME = WIDTH * HEIGHT };

static int clamp(int v) { return v < 0 ? 0 : v > 255 ? 255 : v; }

/* Large plain areas, a soft gradient, and discs that move. */
static void paint(int frame, int x, int y, int *rgb) {
    int dx = x - 160 - (int)(90 * sin(frame / 17.0)), dy = y - 120 - (int)(60 * cos(frame / 23.0));
    rgb[0] = 51 * (y / 60), rgb[1] = 51 * (x / 80), rgb[2] = 102;
    if (y > 96) rgb[0] = 60 + x / 4, rgb[1] = 90 + (y - 96) / 2, rgb[2] = 40 + (frame & 63);
    if (dx * dx + dy * dy < 2500) rgb[0] = 204, rgb[1] = 153, rgb[2] = 51;
    if ((x - frame * 2) % 96 == 0) rgb[0] = rgb[1] = rgb[2] = 255;
}

static void decode(int frame, unsigned char *out) {
    static int rows[2][WIDTH + 2][3];
    memset(rows, 0, sizeof rows);
    for (int y = 0; y < HEIGHT; y++) {
        int(*now)[3] = rows[y & 1], (*next)[3] = rows[~y & 1];
        memset(next, 0, sizeof rows[0]);
        for (int x = 0; x < WIDTH; x++) {
            int rgb[3], index = 0;
            paint(frame, x, y, rgb);
            for (int c = 0; c < 3; c++) {
                int want = clamp(rgb[c] + now[x + 1][c] / 16), level = (want + 25) / 51, error = want - level * 51;
                index = index * 6 + level;
                now[x + 2][c] += error * 7;
                next[x][c] += error * 3;
                next[x + 1][c] += error * 5;
                next[x + 2][c] += error;
            }
            out[y * WIDTH + x] = index;
        }
    }
}

static uint64_t digest(const unsigned char *p) {
    uint64_t s = 0, w;
    for (int i = 0; i < FRAME; i += 8) { memcpy(&w, p + i, 8); s = (s ^ w) * 0x100000001b3ull; s ^= s >> 29; }
    return s;
}

int main(int argc, char **argv) {
    uint64_t frames = arg_u64(argc, argv, 1, 750), shows = arg_u64(argc, argv, 2, 3);
    unsigned char *mem = pages_map((frames * FRAME + PAGE - 1) / PAGE);
    uint64_t *known = calloc(frames, sizeof *known);
    double start = seconds();
    for (uint64_t f = 0; f < frames; f++) {
        decode(f, mem + f * FRAME);
        known[f] = digest(mem + f * FRAME);
    }
    for (uint64_t s = 0; s < shows; s++)
        for (uint64_t f = 0; f < frames; f++)
            if (digest(mem + f * FRAME) != known[f]) wrong("frame", f);
    measured(start);
    return 0;
}
