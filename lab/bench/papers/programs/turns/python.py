# Records as Python objects. See ../turns.py.
import sys

N, M = int(sys.argv[1]), 2147483647


def text(i):
    x, out = (i * 48271 + 11) % M, []
    for j in range(64):
        x = x * 16807 % M
        out.append("%08x-field-%02d;" % (x, j))
    return "".join(out) + out[0][:8]


def touch(hot, turn):
    global total
    for i in range(N):
        block = i // 32
        if hot != (block * 7919 % 1000 < 400) or not hot and block % 10 != turn % 10:
            continue
        record = records[i]
        first = "%08x" % ((i * 48271 + 11) % M * 16807 % M)
        if not record[0].startswith(first) or not record[0].endswith(first):
            sys.exit(f"MISMATCH: record {i}")
        if i % 4 == 0:
            record[1] += 1
            total += 1


total, records = 0, [[text(i), 0] for i in range(N)]
print("k", flush=True)
for line in sys.stdin:
    what, turn = line.split()
    if what == "q":
        if any(records[i][0] != text(i) for i in range(N)) or sum(r[1] for r in records) != total:
            sys.exit("MISMATCH: at the end")
        break
    touch(what == "r", int(turn))
    print(what, flush=True)
