"""launch.py MIB LAUNCHES: programs start one after the other, two at a time, while a big one waits and looks at its memory now and
then."""
import hashlib
import subprocess
import sys
import zlib

BLOCK = 64 << 10


def block(i):
    seed = hashlib.sha256(str(i).encode()).digest()
    return bytearray((seed * 40 + bytes(2048) + str(i).encode() * 300)[:4096] * (BLOCK // 4096))


def main():
    count, launches = int(sys.argv[1]) * (1 << 20) // BLOCK, int(sys.argv[2])
    blocks = [block(i) for i in range(count)]
    known = [zlib.crc32(b) for b in blocks]
    total = 0
    for n in range(launches):
        line = f"seq {n} {n + 3000} | sort -r | cksum & seq {n} {n + 3000} | awk '{{ s += $1 * $1 }} END {{ print s }}'; wait"
        said = subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout
        total = zlib.crc32(b"".join(sorted(said.splitlines())), total)
        i = n * 7919 % count
        if zlib.crc32(blocks[i]) != known[i]:
            sys.exit(f"MISMATCH: block {i}")
    for i, b in enumerate(blocks):
        if zlib.crc32(b) != known[i]:
            sys.exit(f"MISMATCH: block {i}")
    print(f"launch {count} {launches} {total:08x}")


main()
