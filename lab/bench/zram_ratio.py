#!/usr/bin/env python3
"""What the kernel's zram makes of sampled pages: lab/bench/zram_ratio.py DIRECTORY [ALGORITHM...]

As root: writes each NAME.pages of DIRECTORY to a zram device of its own and reads how long the pages became, for each of the
kernel's codecs. The device is removed at the end, whatever happens. Pages of one repeated word, which zram keeps apart, do not
count, as in `make bench-codecs`. Prints a Markdown table.
"""
import glob
import os
import sys

PAGE = 4096
CONTROL = "/sys/class/zram-control"


def read(path):
    with open(path) as f:
        return f.read().strip()


def write(path, value):
    with open(path, "w") as f:
        f.write(str(value))


def measure(number, algorithm, data):
    """Compressed / original length of the pages that are not one repeated word."""
    block = f"/sys/block/zram{number}"
    write(f"{block}/reset", 1)
    write(f"{block}/comp_algorithm", algorithm)
    write(f"{block}/disksize", len(data))
    with open(f"/dev/zram{number}", "r+b", buffering=0) as device:
        device.write(data)
        os.fsync(device.fileno())
    original, compressed, _, _, _, same = (int(word) for word in read(f"{block}/mm_stat").split()[:6])
    return compressed / (original - same * PAGE)


def node(number):
    """The device's file, made here where no udev does it."""
    path = f"/dev/zram{number}"
    if not os.path.exists(path):
        major, minor = (int(n) for n in read(f"/sys/block/zram{number}/dev").split(":"))
        os.mknod(path, 0o600 | 0o060000, os.makedev(major, minor))
        return path
    return None


def main(directory, wanted):
    if os.geteuid() or not os.path.isdir(CONTROL):
        print("zram_ratio: SKIPPED: needs root and the zram module", file=sys.stderr)
        return
    number = int(read(f"{CONTROL}/hot_add"))
    made = None
    try:
        made = node(number)
        known = read(f"/sys/block/zram{number}/comp_algorithm").replace("[", "").replace("]", "").split()
        algorithms = [name for name in wanted or known if name in known]
        print(f"\nThe kernel's zram on them: ratio\n\n| pages | {' | '.join(algorithms)} |\n| ---{' | ---:' * len(algorithms)} |")
        sums = [0] * len(algorithms)
        files = sorted(glob.glob(f"{directory}/*.pages"))
        for path in files:
            with open(path, "rb") as f:
                data = f.read()
            ratios = [measure(number, algorithm, data) for algorithm in algorithms]
            sums = [a + b for a, b in zip(sums, ratios)]
            print(f"| {os.path.basename(path)[:-6]} | {' | '.join(f'{ratio:.3f}' for ratio in ratios)} |")
        if files:
            print(f"| mean | {' | '.join(f'{total / len(files):.3f}' for total in sums)} |")
    finally:
        write(f"/sys/block/zram{number}/reset", 1)
        write(f"{CONTROL}/hot_remove", number)
        if made:
            os.unlink(made)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
