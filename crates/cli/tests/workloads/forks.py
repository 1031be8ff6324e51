"""Fork children that verify what they inherit and change it, while the parent changes its own."""
import multiprocessing
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
import blocks

memory = blocks.build(21, 44)
known = blocks.sums(memory)
print(blocks.churn(memory, 1, 1, known), flush=True)


def child(number):
    return blocks.churn(memory[number::4], number, 2, known[number::4])


for round in range(3):
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, str(child(round)).encode())
        os._exit(0)
    os.close(theirs)
    print(blocks.churn(memory[3::4], round, 1, None), flush=True)
    known[3::4] = blocks.sums(memory[3::4])
    with os.fdopen(ours) as text:
        print(text.read(), os.waitpid(pid, 0)[1], flush=True)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(child, range(4)), flush=True)
print(blocks.churn(memory, 2, 1, known))
