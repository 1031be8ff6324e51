"""Writes a file, larger than its control group has memory for, again and again until its parent ends: the kernel has to reclaim
page cache for each page, and the writer waits for that."""
import os
import sys

name, mib = sys.argv[1], int(sys.argv[2])
block, parent = os.urandom(1 << 20), os.getppid()
while os.getppid() == parent:
    with open(name, "wb", buffering=0) as file:
        for _ in range(mib):
            file.write(block)
    os.unlink(name)
