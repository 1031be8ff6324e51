"""Writes what `memfit stat` says of the tree whose command holds a word, when the pool has got small, or after 120 s.

Usage: look.py MEMFIT WORD FILE"""
import json
import subprocess
import sys
import time

memfit, word, path = sys.argv[1:]
deadline = time.monotonic() + 120
while True:
    # Not checked: another tree of this user may not answer.
    text = subprocess.run([memfit, "stat", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    tree = next(tree for tree in json.loads(text) if word in str(tree["command"]))
    if tree["pool"]["zpages"] + tree["now"]["pages"]["staged"] < 64 or time.monotonic() > deadline:
        break
    time.sleep(0.1)
with open(path, "w") as file:
    json.dump(tree, file)
