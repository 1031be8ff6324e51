"""pygraph MIB STEPS: a graph of dicts, lists, tuples and strings, and shuffled walks over it.

Every visited node is verified (name and tags follow from its number) and
changed a little; the walk's checksum is the result.
"""
import random
import sys

NODE_BYTES = 900  # measured: dict, list, tuple, strings, ints


def make(i, rng, count):
    return {
        "id": i,
        "name": f"node-{i:09d}",
        "tags": (f"t{i % 97}", f"group-{i % 1013}", i * 31),
        "next": [rng.randrange(count) for _ in range(6)],
        "weight": i * 0.5,
        "seen": 0,
    }


def main():
    count = int(sys.argv[1]) * (1 << 20) // NODE_BYTES
    steps = int(sys.argv[2])
    rng = random.Random(7)
    nodes = [make(i, rng, count) for i in range(count)]
    order = list(range(count))
    rng.shuffle(order)
    total = 0

    def visit(node):
        i = node["id"]
        if node["name"] != f"node-{i:09d}" or node["tags"][2] != i * 31:
            sys.exit(f"MISMATCH: node {i} is {node!r}")
        node["seen"] += 1
        node["next"][node["seen"] % 6] = (i * 7 + node["seen"]) % count
        return i + node["seen"] * len(node["tags"][1])

    for i in order[:steps // 2]:
        total = (total * 31 + visit(nodes[i])) % (1 << 61)
    at = order[0]
    for step in range(steps - steps // 2):
        node = nodes[at]
        total = (total * 31 + visit(node)) % (1 << 61)
        at = node["next"][step % 6] if step % 64 else order[step % count]
    for i, node in enumerate(nodes):
        if node["id"] != i or node["weight"] != i * 0.5:
            sys.exit(f"MISMATCH: node {i} is {node!r}")
        total = (total * 31 + node["seen"]) % (1 << 61)
    print(f"pygraph {count} {total:016x}")


main()
