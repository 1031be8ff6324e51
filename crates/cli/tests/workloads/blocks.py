"""Blocks of memory with known contents of several kinds, changed and verified again and again."""
import array
import random
import zlib

BLOCK = 8192


def build(seed, mib):
    """Text, small integers, floats, zeros, and one block in sixteen that does not compress."""
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randint(2, 9)).hex().encode() for _ in range(400)]
    blocks = []
    for i in range(mib * 1048576 // BLOCK):
        kind = i % 16
        if kind < 6:
            data = b" ".join(rng.choices(words, k=600))
        elif kind < 11:
            start = rng.randrange(1 << 40)
            data = array.array("q", range(start, start + BLOCK // 8)).tobytes()
        elif kind < 14:
            data = array.array("d", [i * 0.5] * 512 + [float(i)] * 512).tobytes()
        elif kind < 15:
            data = bytes(BLOCK)
        else:
            data = rng.randbytes(BLOCK)
        blocks.append(bytearray((data * 2)[:BLOCK]))
    return blocks


def sums(blocks):
    return [zlib.crc32(block) for block in blocks]


def churn(blocks, seed, passes, known=None):
    """Visits the blocks in random order, verifies each, changes a few bytes; returns a sum over all that was seen."""
    rng = random.Random(seed)
    known = sums(blocks) if known is None else known
    order = list(range(len(blocks)))
    total = 0
    for _ in range(passes):
        rng.shuffle(order)
        for i in order:
            block = blocks[i]
            found = zlib.crc32(block)
            if found != known[i]:
                raise SystemExit(f"MISMATCH in block {i}: {block[:32].hex()}")
            at = rng.randrange(BLOCK - 8)
            block[at : at + 4] = found.to_bytes(4, "little")
            if rng.random() < 0.1:
                blocks[i] = block = bytearray(block)
            known[i] = zlib.crc32(block)
            total = zlib.crc32(found.to_bytes(4, "little"), total)
    return total
