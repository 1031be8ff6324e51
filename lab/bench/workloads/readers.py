"""readers make|read numpy|sqlite|lmdb PATH COUNT: an array in a file (numpy.memmap), a SQLite database in mmap mode, or an LMDB
environment, each read-only. "make" writes it with COUNT MiB, "read" looks COUNT records up at random, verifies each, and prints
a sum."""
import math
import random
import sys

RECORD_BYTES = 1024
WORDS = "alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo lima mike".split()


def record(i):
    """Text of a log: it compresses about 5:1."""
    x = (i * 2654435761) & 0xFFFFFFFF
    text = f"{i:010d} " + " ".join(f"{WORDS[(x >> s) % 13]}={(x >> s // 2) & 0xfff}" for s in range(31)) + " "
    return (text * 4)[:RECORD_BYTES - 64].encode()


class Numpy:
    """Rows of measured values that change slowly."""
    COLUMNS = RECORD_BYTES // 4

    @staticmethod
    def row(numpy, i):
        return numpy.float32(i) + numpy.floor(numpy.arange(Numpy.COLUMNS, dtype=numpy.float32) / 8)

    @staticmethod
    def make(path, records):
        import numpy
        out = numpy.memmap(path, dtype=numpy.float32, mode="w+", shape=(records, Numpy.COLUMNS))
        for i in range(records):
            out[i] = Numpy.row(numpy, i)
        out.flush()

    @staticmethod
    def reader(path):
        import numpy
        rows = numpy.memmap(path, dtype=numpy.float32, mode="r").reshape(-1, Numpy.COLUMNS)

        def right(i):
            return bool((rows[i] == Numpy.row(numpy, i)).all())
        return len(rows), right


class Sqlite:
    @staticmethod
    def make(path, records):
        import sqlite3
        db = sqlite3.connect(path)
        db.execute("create table t (id integer primary key, body blob)")
        db.executemany("insert into t values (?, ?)", ((i, record(i)) for i in range(records)))
        db.commit()
        db.close()

    @staticmethod
    def reader(path):
        import sqlite3
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        db.execute(f"pragma mmap_size = {1 << 34}")
        records = db.execute("select max(id) from t").fetchone()[0] + 1
        return records, lambda i: db.execute("select body from t where id = ?", (i,)).fetchone()[0] == record(i)


class Lmdb:
    @staticmethod
    def make(path, records):
        import lmdb
        env = lmdb.open(path, subdir=False, map_size=1 << 34, lock=False)
        with env.begin(write=True) as put:
            for i in range(records):
                put.put(f"{i:010d}".encode(), record(i), append=True)
        env.close()

    @staticmethod
    def reader(path):
        import lmdb
        env = lmdb.open(path, subdir=False, readonly=True, lock=False)
        get = env.begin()
        return env.stat()["entries"], lambda i: get.get(f"{i:010d}".encode()) == record(i)


KINDS = {"numpy": Numpy, "sqlite": Sqlite, "lmdb": Lmdb}


def main():
    what, kind, path, count = sys.argv[1], KINDS[sys.argv[2]], sys.argv[3], int(sys.argv[4])
    if what == "make":
        return kind.make(path, math.ceil(count * (1 << 20) / RECORD_BYTES))
    records, right = kind.reader(path)
    draw, total = random.Random(5), 0
    for _ in range(count):
        i = draw.randrange(records)
        if not right(i):
            sys.exit(f"MISMATCH: record {i}")
        total = (total * 31 + i) & (2**64 - 1)
    print(f"{sys.argv[2]} {records} {total:016x}")


main()
