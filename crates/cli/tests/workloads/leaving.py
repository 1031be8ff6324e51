"""Big children that end at once, are killed, or call exec, in the middle of their work; the others must not notice."""
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(__file__))
import blocks

BIG = os.path.join(os.path.dirname(__file__), "big.py")


def exits():
    memory = blocks.build(1, 28)
    blocks.churn(memory, 1, 1)
    os._exit(7)


def is_killed():
    memory = blocks.build(2, 28)
    blocks.churn(memory, 2, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def execs():
    memory = blocks.build(3, 28)
    blocks.churn(memory, 3, 1)
    os.execv(sys.executable, [sys.executable, BIG, "4", "28", "1"])


def works():
    memory = blocks.build(5, 28)
    total = blocks.churn(memory, 5, 3)
    print("worked", total, flush=True)
    os._exit(0)


out = []
for action in (exits, is_killed, execs, works):
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(theirs, 1)
        action()
    os.close(theirs)
    out.append((pid, ours))
for pid, pipe in out:
    with os.fdopen(pipe) as text:
        print(text.read(), os.waitpid(pid, 0)[1])
