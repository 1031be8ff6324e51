"""prefork.py MIB WORKERS LOOKUPS [OWN]: a server that loads its data, forks workers, and has them answer at the same time.

Half of the data are dicts of strings and numbers: CPython writes the reference counts of what a worker looks at, and so
copies its page. The other half are rows in one buffer, which workers only read. With OWN all data are rows, and each
worker has as many MiB of its own, which it changes at random. Each answer is verified.
"""
import gc
import os
import random
import struct
import sys
import zlib

ENTRY_BYTES = 610  # measured: dict, strings, tuple, number
ROW = struct.Struct("<IId48s")
OWN = 4096


def entry(i):
    return {"id": i, "name": f"article number {i:09d}", "words": (f"word {i % 977}", f"{i * 7919 % 100003:08d}"), "price": i * 0.25}


def row(i):
    return ROW.pack(i, i * 7919 & 0xffffffff, i * 0.5, (f"row {i} " * 8).encode()[:48])


def page(worker, i, turn):
    return (f"worker {worker} page {i} turn {turn} ".encode() * 200)[:OWN - 8] + struct.pack("<II", i, turn)


def look_up(entries, rows, i):
    if entries:
        at = i % len(entries)
        if entries[at] != entry(at):
            sys.exit(f"MISMATCH: entry {at} is {entries[at]!r}")
    at = i * 31 % (len(rows) // ROW.size)
    found = bytes(rows[at * ROW.size:(at + 1) * ROW.size])
    if found != row(at):
        sys.exit(f"MISMATCH: row {at} is {found!r}")
    return found


def work(worker, entries, rows, lookups, own_mib):
    rng = random.Random(worker)
    pages = own_mib * (1 << 20) // OWN
    own, turns, total = bytearray(pages * OWN), [0] * pages, 0
    for n in range(lookups):
        total = zlib.crc32(look_up(entries, rows, rng.randrange(1 << 30)), total + n & 0xffffffff)
        if pages:
            i = rng.randrange(pages)
            at = slice(i * OWN, (i + 1) * OWN)
            if turns[i] and own[at] != page(worker, i, turns[i]):
                sys.exit(f"MISMATCH: page {i} of worker {worker}")
            turns[i] += 1
            own[at] = page(worker, i, turns[i])
    return total


def main():
    mib, workers, lookups, own_mib = (int(arg) for arg in (*sys.argv[1:], 0)[:4])
    entries = [] if own_mib else [entry(i) for i in range((mib << 19) // ENTRY_BYTES)]
    count = (mib << (20 if own_mib else 19)) // ROW.size
    rows = bytearray(count * ROW.size)
    for i in range(count):
        rows[i * ROW.size:(i + 1) * ROW.size] = row(i)
    gc.freeze()
    pipes = []
    for worker in range(workers):
        reads, writes = os.pipe()
        if os.fork() == 0:
            os.write(writes, struct.pack("<I", work(worker, entries, rows, lookups, own_mib)))
            os._exit(0)
        os.close(writes)
        pipes.append(reads)
    said = [os.read(pipe, 4) for pipe in pipes]
    for _ in said:
        if os.waitstatus_to_exitcode(os.wait()[1]) != 0:
            sys.exit("a worker failed")
    print(f"prefork {mib} {workers} {zlib.crc32(b''.join(said)):08x}")


main()
