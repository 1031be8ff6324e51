"""An in-memory database: inserts, an index, look-ups, updates, deletions, integrity_check."""
import random
import sqlite3

rng = random.Random(11)
db = sqlite3.connect(":memory:")
db.execute("create table t(id integer primary key, name text, value real, data blob)")
words = [rng.randbytes(4).hex() for _ in range(500)]


def rows():
    for i in range(150_000):
        yield i, " ".join(rng.choices(words, k=8)), rng.random(), (i * 7919).to_bytes(8, "little") * rng.randint(4, 40)


db.executemany("insert into t values(?,?,?,?)", rows())
db.execute("create index by_name on t(name)")
db.execute("update t set value = value + length(data) where id % 3 = 0")
db.execute("delete from t where id % 11 = 5")
found = 0
for _ in range(8_000):
    row = db.execute("select name, value from t where id >= ? limit 1", (rng.randrange(150_000),)).fetchone()
    found += db.execute("select count(*) from t where name = ?", (row[0],)).fetchone()[0]
print(found, db.execute("select count(*), sum(value), sum(length(data)), max(name) from t").fetchone())
print(db.execute("pragma integrity_check").fetchall())
