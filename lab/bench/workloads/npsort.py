"""npsort MIB: sort random int64 (6/10 of the memory) and float64 (4/10) in place.

Keys of 16 bits or so, as measured data have; fully random ones would not compress at all.
Verified by order and by sums that sorting must not change. Work goes in
chunks, so the arrays are the footprint.
"""
import sys

import numpy as np

CHUNK = 1 << 17


def fill(count, dtype, draw):
    a = np.empty(count, dtype)
    for i in range(0, count, CHUNK):
        a[i:i + CHUNK] = draw(min(CHUNK, count - i))
    return a


def digest(a):
    """A sum over the bit patterns, independent of order."""
    bits, total = a.view(np.uint64), 0
    for i in range(0, len(a), CHUNK):
        part = bits[i:i + CHUNK]
        total += int((part ^ (part >> np.uint64(17))).sum(dtype=np.uint64))
    return total & (2**64 - 1)


def ordered(a):
    return all(bool((a[i:i + CHUNK] <= a[i + 1:i + 1 + CHUNK]).all())
               if i + CHUNK < len(a) else bool((a[i:-1] <= a[i + 1:]).all())
               for i in range(0, len(a), CHUNK))


def main():
    words = int(sys.argv[1]) * (1 << 20) // 8
    rng = np.random.default_rng(20240229)
    out = []
    ints = fill(words * 6 // 10, np.int64, lambda n: rng.integers(0, 50_000, n))
    floats = fill(words * 4 // 10, np.float64, lambda n: rng.integers(0, 50_000, n) * 0.25)
    for a in (ints, floats):
        before = digest(a)
        a.sort()
        if digest(a) != before or not ordered(a):
            sys.exit("MISMATCH: the sorted array is not a sorted permutation")
        out.append(f"{before:016x}")
        out.append(repr(a[len(a) // 3].item()))
    print("npsort", *out)


main()
