"""Many short-lived children, started in several ways, beside a big parent."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import blocks

memory = blocks.build(31, 40)
known = blocks.sums(memory)
total = 0
for round in range(12):
    part = slice(round, None, 12)
    pids = []
    for i in range(4):
        pid = os.fork()
        if pid == 0:
            os._exit(blocks.sums(memory[i : 40 + i]) != known[i : 40 + i])
        pids.append(pid)
    total += sum(os.waitpid(pid, 0)[1] for pid in pids)
    for i in range(6):
        total += len(subprocess.run(["/bin/echo", str(i)], capture_output=True, check=True).stdout)
    total += len(subprocess.run(["/bin/sh", "-c", "echo a | cat | wc -c"], capture_output=True, check=True).stdout)
    total += subprocess.run(["/bin/true"], preexec_fn=lambda: None).returncode
    some, sums = memory[part], known[part]
    total += blocks.churn(some, round, 1, sums)
    memory[part], known[part] = some, sums
print(total, blocks.churn(memory, 1, 1, known))
