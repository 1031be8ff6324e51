"""Three big processes share the budget; one is stopped when it is full grown, while the others work on."""
import os
import signal
import subprocess
import sys
import time


def start(seed):
    command = [sys.executable, os.path.join(os.path.dirname(__file__), "big.py"), str(seed), "30", "2"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


children = [start(seed) for seed in (1, 2, 3)]
for child in children:
    child.stdout.readline()
children[1].send_signal(signal.SIGSTOP)
time.sleep(1.0)
print(children[0].stdout.read(), children[2].stdout.read())
children[1].send_signal(signal.SIGCONT)
print(children[1].stdout.read())
print([child.wait() for child in children])
