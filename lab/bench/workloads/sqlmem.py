"""sqlmem MIB LOOKUPS: an in-memory SQLite database: inserts, an index, random
look-ups and updates (each row verified), integrity_check."""
import random
import sqlite3
import sys

ROW_BYTES = 290  # measured: row, primary key and index
WORDS = "alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo lima mike".split()


def text(i):
    x = (i * 2654435761) & 0xFFFFFFFF
    return " ".join(WORDS[(x >> s) % 13] for s in range(0, 31)) + f" {x}"


def main():
    rows = int(sys.argv[1]) * (1 << 20) // ROW_BYTES
    lookups = int(sys.argv[2])
    db = sqlite3.connect(":memory:")
    db.execute("create table t (id integer primary key, k integer, n integer, body text)")
    db.executemany("insert into t values (?, ?, 0, ?)",
                   ((i, (i * 7919) % 1000003, text(i)) for i in range(rows)))
    db.execute("create index t_k on t (k, n)")
    rng = random.Random(11)
    total = 0
    for step in range(lookups):
        i = rng.randrange(rows)
        if step % 4 == 0:
            db.execute("update t set n = n + 1 where id = ?", (i,))
        elif step % 4 == 1:
            key = (i * 7919) % 1000003
            for row, n in db.execute("select id, n from t where k = ? order by id", (key,)):
                total += row * 3 + n
        else:
            key, n, body = db.execute("select k, n, body from t where id = ?", (i,)).fetchone()
            if key != (i * 7919) % 1000003 or body != text(i):
                sys.exit(f"MISMATCH: row {i} is {key} {body!r}")
            total += key + n
    check = db.execute("pragma integrity_check").fetchone()[0]
    if check != "ok":
        sys.exit(f"MISMATCH: integrity_check: {check}")
    changed = db.execute("select sum(n), count(*) from t").fetchone()
    print(f"sqlmem {rows} {total & (2**64 - 1):016x} {changed[0]} {changed[1]}")


main()
