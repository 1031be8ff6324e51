#!/usr/bin/env python3
"""Plain LRU of memfit's simulator against libCacheSim (Yang et al.): the same traces, hit counts of both.

    python3 -m venv VENV && VENV/bin/pip install libcachesim
    cargo build --release -p memfit-sim --example touches --example lru
    VENV/bin/python lab/bench/lru_agreement.py [--quick] [--bin target/release/examples]

Installs and builds nothing itself. Prints the table of docs/yardsticks.md. Exit status: 0 if all counts are equal, 1 if not, 2 if
something is missing.
"""

import argparse
import pathlib
import subprocess
import sys

# Workload, sizes in pages. A test of memfit-sim reads the table in docs/yardsticks.md and counts the small ones again.
FULL = [
    ("zipf:pages=100000,skew=0.8,accesses=1500000", (100, 1000, 10000, 50000, 95000)),
    ("zipf:pages=100000,skew=1.0,accesses=1500000", (100, 1000, 10000, 50000, 95000)),
    ("uniform:pages=100000,accesses=1500000", (100, 1000, 10000, 50000, 95000)),
    ("scan:pages=100000,passes=12", (1000, 50000, 99999, 100000)),
    ("phase:pages=100000,phases=8,accesses=150000", (1000, 10000, 20000, 50000, 95000)),
    ("launch:apps=14,repetitions=10", (1000, 10000, 30000, 50000)),
    ("launch:apps=14,repetitions=20,ends=repetition", (10000, 20000, 30000, 40000)),
    ("launch:apps=14,repetitions=10,ends=once", (10000, 20000, 30000)),
]
SMALL = [
    ("zipf:pages=2000,skew=0.8,accesses=50000", (10, 100, 1000, 1900)),
    ("zipf:pages=2000,skew=1.0,accesses=50000", (10, 100, 1000, 1900)),
    ("uniform:pages=2000,accesses=50000", (10, 100, 1000, 1900)),
    ("scan:pages=2000,passes=20", (1000, 1999, 2000)),
    ("phase:pages=2000,phases=4,accesses=10000", (100, 400, 1000)),
    ("burst:pages=500,bursts=40", (100, 500, 3000, 4000)),
    ("launch:apps=4,repetitions=12,ends=once,anon=1M,code=1M,media=512K", (300, 500, 1200)),
    ("hog", (10000, 30000, 60000)),
]


def stop(message):
    print(f"lru_agreement: {message}", file=sys.stderr)
    sys.exit(2)


def touches(binary, workload):
    """The trace as (number of the page, whether it is freed); and how many touches it has."""
    out = subprocess.run([binary, "--frees", workload], stdout=subprocess.PIPE, check=True).stdout
    trace, count = [], 0
    for line in out.split(b"\n"):
        if line:
            fields = line.split(b",")
            freed = len(fields) == 3
            trace.append((int(fields[0]) << 40 | int(fields[1]), freed))
            count += not freed
    return trace, count


def theirs(libcachesim, trace, size, remove=True):
    """Hits of their LRU, each page an object of size 1; a page that is freed is removed, or not."""
    cache = libcachesim.LRU(cache_size=size)
    request = libcachesim.Request()
    request.obj_size = 1
    hits = 0
    for page, freed in trace:
        if freed:
            if remove:
                cache.remove(page)
        else:
            request.obj_id = page
            hits += cache.get(request)
    return hits


def ours(binary, workload, sizes):
    """Hits by size, of all sizes at once and of each alone: `size,hits,hits` a line."""
    out = subprocess.run([binary, workload, *map(str, sizes)], stdout=subprocess.PIPE, check=True, text=True).stdout
    return {int(size): (int(all_sizes), int(one)) for size, all_sizes, one in (line.split(",") for line in out.split())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only the small traces")
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("target/release/examples"), metavar="DIR",
                        help="where the examples touches and lru of memfit-sim are")
    args = parser.parse_args()
    try:
        import libcachesim
    except ImportError:
        stop("this Python has no libcachesim: make a virtual environment, and pip install libcachesim there")
    for name in ("touches", "lru"):
        if not (args.bin / name).exists():
            stop(f"{args.bin / name} is not there: cargo build --release -p memfit-sim --example touches --example lru")
    print(f"libCacheSim by its Python package {libcachesim.__version__}\n", file=sys.stderr)
    print("| workload | touches | pages of memory | libCacheSim, hits | memfit, hits | difference | libCacheSim without `remove` |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    same = True
    for workload, sizes in SMALL if args.quick else SMALL + FULL:
        trace, count = touches(args.bin / "touches", workload)
        mine = ours(args.bin / "lru", workload, sizes)
        for size in sizes:
            want, (all_sizes, one) = theirs(libcachesim, trace, size), mine[size]
            if all_sizes != one:
                stop(f"{workload}, {size} pages: {all_sizes} hits by distances, {one} by a list")
            same &= want == one
            # Tells whether it matters in this row that pages are freed.
            frees = any(freed for _, freed in trace)
            without = theirs(libcachesim, trace, size, remove=False) if frees else want
            print(f"| `{workload}` | {count} | {size} | {want} | {one} | {one - want} | {without} |", flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
