"""Has a child in a process group of its own, whose number it writes into the file child, until the file go appears."""
import os
import time

pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    with open("child.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("child.new", "child")
    while not os.path.exists("go"):
        time.sleep(0.05)
    os._exit(0)
os.waitpid(pid, 0)
print("job", "ends", flush=True)
