"""frame.py pandas|polars|duckdb ROWS: groups, joins and sorts a table."""
import sys

import numpy as np

library, rows = sys.argv[1], int(sys.argv[2])
random = np.random.default_rng(1)
key, value = random.integers(0, rows // 10, rows), random.integers(0, 1000, rows)
text = np.char.add("name ", (key % 1000).astype(str))
if library == "pandas":
    import pandas as pd
    table = pd.DataFrame({"key": key, "value": value, "text": text})
    sums = table.groupby("key")["value"].sum().reset_index()
    joined = table.merge(sums, on="key").sort_values(["value_y", "key", "value_x"])
    print(int((joined["value_y"].to_numpy() * np.arange(len(joined)) % 1000003).sum()), table.groupby("text")["value"].sum().head(5).to_dict())
elif library == "polars":
    import polars as pl
    table = pl.DataFrame({"key": key, "value": value, "text": text})
    sums = table.group_by("key").agg(pl.col("value").sum().alias("sum"))
    joined = table.join(sums, on="key").sort(["sum", "key", "value"])
    print(int((joined["sum"].to_numpy() * np.arange(len(joined)) % 1000003).sum()), table.group_by("text").agg(pl.col("value").sum()).sort("text").head(5).rows())
else:
    import duckdb
    base = duckdb.connect()
    base.execute("set threads = 2; set memory_limit = '4GB'")
    base.execute("create table t as select (i * 7919) % ? as key, (i * 31) % 1000 as value, 'name ' || (i % 1000) as text from range(?) r(i)", [rows // 10, rows])
    print(base.execute("select sum(hash(s.key) % 1000 * s.total % 1000003) from (select key, sum(value) as total from t group by key) s join t on t.key = s.key").fetchall())
    print(base.execute("select text, sum(value) from t group by text order by text limit 5").fetchall())
