"""Dictionaries, lists, tuples and strings that point at each other; walked in random order, changed, collected."""
import gc
import random
import zlib

rng = random.Random(7)
nodes = {}
for i in range(64_000):
    nodes[f"node-{i}"] = {"id": i, "name": f"name of {i}", "edges": [], "pair": (i, float(i) / 3)}
names = list(nodes)
for node in nodes.values():
    node["edges"] = [nodes[names[rng.randrange(len(names))]] for _ in range(3)]
total = 0
for round in range(2):
    rng.shuffle(names)
    for name in names[: len(names) // 12]:
        node = nodes[name]
        text = f"{node['id']}{node['name']}{node['pair']}{[edge['id'] for edge in node['edges']]}"
        total = zlib.crc32(text.encode(), total)
        node["name"] = f"{node['name'][:12]}.{total & 0xffff}"
    for name in names[: len(names) // 20]:
        nodes[name]["edges"] = []
    print(round, total, gc.collect())
