"""redis.py get|set KEYS REQUESTS: a redis server with known values under redis-benchmark, which keeps a second CPU busy.

The values are verified at the end: all that were not written by the benchmark, and that those that were are what it writes.
Needs redis-benchmark and a server: redis-server, or Debian's redis-check-rdb, which is the same program.
"""
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

VALUE_BYTES = 1000


def value(i):
    seed = hashlib.sha256(str(i).encode()).hexdigest()
    return (f"value {i} " + (seed + seed[:16] * 6) * 8)[:VALUE_BYTES]


def name(i):
    return f"key:{i:012d}"  # as redis-benchmark -r names them


def main():
    what, count, requests = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    server = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    with tempfile.TemporaryDirectory() as place:
        path = f"{place}/socket"
        options = ["--port", "0", "--unixsocket", path, "--save", "", "--dir", place, "--loglevel", "warning"]
        process = subprocess.Popen(["redis-server", *options], executable=server, stdout=subprocess.DEVNULL)
        try:
            run(what, count, requests, path, process)
        finally:
            process.kill()
            process.wait()


def run(what, count, requests, path, process):
    client = socket.socket(socket.AF_UNIX)
    while client.connect_ex(path):
        if process.poll() is not None:
            sys.exit("the server does not start")
        time.sleep(0.01)
    replies = client.makefile("rb")

    def send(*words):
        parts = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        client.sendall(f"*{len(words)}\r\n{parts}".encode())

    for at in range(0, count, 500):
        batch = range(at, min(at + 500, count))
        for i in batch:
            send("SET", name(i), value(i))
        for _ in batch:
            if replies.readline() != b"+OK\r\n":
                sys.exit("the server refuses a value")
    command = ["redis-benchmark", "-s", path, "-t", what, "-r", str(count), "-n", requests, "-c", "20", "-d", str(VALUE_BYTES), "-q"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    sys.stderr.write(said.rsplit("\r", 1)[-1])
    written, pattern = 0, None  # redis-benchmark writes the same bytes everywhere, random ones in newer versions
    for at in range(0, count, 500):
        batch = range(at, min(at + 500, count))
        for i in batch:
            send("GET", name(i))
        for i in batch:
            length = int(replies.readline()[1:])
            found = replies.read(length + 2)[:-2].decode()
            if found != value(i):
                written += 1
                pattern = pattern or found
                if what == "get" or found != pattern or length != VALUE_BYTES:
                    sys.exit(f"MISMATCH: {name(i)} is {found[:60]!r}")
    if (what == "set") != (written > 0):
        sys.exit(f"MISMATCH: {written} keys were written")
    print(f"redis {what} {count} keys of {VALUE_BYTES} bytes are right")


main()
