"""Grows by appending, then reads all of it back."""
import sys

mib = int(sys.argv[1])
rows = []
for i in range(mib * 1024):
    rows.append(f"{i:8d} the same words in every row, and a number".encode() * 20)
total = 0
for i, row in enumerate(rows):
    assert row.startswith(f"{i:8d} ".encode()), i
    total += len(row)
print(total)
