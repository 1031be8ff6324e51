/* fft ROWS COLUMNS TIMES [SCRATCH]: in place 2-D transforms there and back of a matrix of complex numbers, whose real parts are
 * random; rows in order, columns strided. Each pass is rounded to float32, which keeps the lower half of each double zero
 * and so the ratio. With SCRATCH 1 each pass goes through a second matrix. At the end the matrix is the one of the start. */
#include "common.h"
#include <complex.h>
#include <math.h>

typedef double complex number;
static number roots[1 << 16];

static void transform(number *x, unsigned n, int back) {
    for (unsigned i = 1, j = 0; i < n; i++) {
        unsigned bit = n >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j |= bit;
        if (i < j) { number t = x[i]; x[i] = x[j]; x[j] = t; }
    }
    for (unsigned len = 2; len <= n; len *= 2)
        for (unsigned i = 0; i < n; i += len)
            for (unsigned k = 0; k < len / 2; k++) {
                number w = roots[k * (n / len)];
                number u = x[i + k], v = x[i + k + len / 2] * (back ? conj(w) : w);
                x[i + k] = u + v;
                x[i + k + len / 2] = u - v;
            }
}

static double rounded(double v) { return (float)v; }

/* n numbers that lie stride apart, and their transform to where they came from or to another matrix. */
static void line(number *from, number *to, unsigned n, unsigned stride, int back) {
    static number one[1 << 16];
    for (unsigned i = 0; i < n; i++) one[i] = from[(uint64_t)i * stride];
    transform(one, n, back);
    double scale = back ? 1.0 / n : 1.0;
    for (unsigned i = 0; i < n; i++)
        to[(uint64_t)i * stride] = rounded(creal(one[i]) * scale) + rounded(cimag(one[i]) * scale) * I;
}

static void make_roots(unsigned n) {
    for (unsigned k = 0; k < n; k++) roots[k] = cexp(-2 * M_PI * I * k / n);
}

static double value(uint64_t i) { return (float)((mix64(i) >> 40) / (double)(1 << 24)); }

int main(int argc, char **argv) {
    unsigned rows = arg_u64(argc, argv, 1, 1024), columns = arg_u64(argc, argv, 2, 2048), times = arg_u64(argc, argv, 3, 1);
    uint64_t all = (uint64_t)rows * columns, pages = all * sizeof(number) / PAGE;
    if ((rows & (rows - 1)) || (columns & (columns - 1)) || rows > 1 << 16 || columns > 1 << 16) return 2;
    number *matrix = (number *)pages_map(pages), *other = arg_u64(argc, argv, 4, 0) ? (number *)pages_map(pages) : matrix;
    for (uint64_t i = 0; i < all; i++) matrix[i] = value(i);
    double start = seconds();
    for (unsigned t = 0; t < times; t++)
        for (int back = 0; back < 2; back++) {
            make_roots(columns);
            for (uint64_t r = 0; r < rows; r++) line(matrix + r * columns, other + r * columns, columns, 1, back);
            make_roots(rows);
            for (unsigned c = 0; c < columns; c++) line(other + c, matrix + c, rows, columns, back);
        }
    measured(start);
    for (uint64_t i = 0; i < all; i++)
        if (!(cabs(matrix[i] - value(i)) < 1e-3)) wrong("element", i);
    return 0;
}
