"""Fills memory with random bytes, MiB by MiB, and verifies them when the file NAME.go appears."""
import os
import sys
import time
import zlib

name, mib = sys.argv[1], int(sys.argv[2])
print("starts", flush=True)
while not os.path.exists(name + ".fill"):
    time.sleep(0.01)
blocks = []
for _ in range(mib):
    blocks.append(os.urandom(1 << 20))
    time.sleep(0.02)
known = [zlib.crc32(block) for block in blocks]
print("ready", flush=True)
while not os.path.exists(name + ".go"):
    time.sleep(0.01)
right = all(zlib.crc32(block) == sum for block, sum in zip(blocks, known))
print("right" if right else "WRONG", flush=True)
sys.exit(not right)
