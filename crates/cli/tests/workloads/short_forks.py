"""Has children fill memory, each for less time than the pager waits for a stub."""
import os
import time

for _ in range(2):
    pid = os.fork()
    if pid == 0:
        data = bytearray(b"x") * (80 << 20)
        time.sleep(1.3)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
print("done")
