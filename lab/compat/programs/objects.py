"""objects.py COUNT: dictionaries, sets and tuples of Python, changed and checked."""
import gc
import sys

count = int(sys.argv[1])
seed, total = 1, 0
objects = {}
for i in range(count):
    seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
    objects[i] = {"number": seed % 1000, "pair": (i, str(i)), "set": {i, i + 1}}
for _ in range(2):
    for i in range(count):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        one = objects[seed % count]
        total = (total * 31 + one["number"] + one["pair"][0]) % 1000000007
        one["pair"] = tuple(one["pair"])
    gc.collect()
print(len(objects), total)
