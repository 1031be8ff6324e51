"""Sorts integers and floats, in place and by index."""
import zlib

import numpy

rng = numpy.random.default_rng(3)
a = rng.integers(0, 1 << 40, 5_000_000, dtype=numpy.int64)
b = rng.integers(0, 1 << 20, 2_500_000) / 7.0
print(zlib.crc32(a), zlib.crc32(b))
total = int(a.sum()), float(b.sum())
a.sort()
index = numpy.argsort(b, kind="stable")
print(zlib.crc32(a), zlib.crc32(index), zlib.crc32(b[index]))
assert (a[1:] >= a[:-1]).all() and (int(a.sum()), float(b.sum())) == total
print((a.reshape(1000, -1).mean(axis=1) * 3).sum(), total)
