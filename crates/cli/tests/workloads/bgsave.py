"""A redis server saves in a fork child while it is written to; another one loads what was saved, and every key is compared.

Usage: bgsave.py SERVER KEYS, SERVER being the program."""
import atexit
import hashlib
import os
import signal
import socket
import subprocess
import sys
import time

server, count = sys.argv[1], int(sys.argv[2])


def value(i, version):
    seed = hashlib.sha256(f"{i}.{version}".encode()).hexdigest()
    return (f"key {i} version {version} " + seed * 12)[: 300 + i % 400]


class Redis:
    def __init__(self, name, *options):
        # Another run's files may be another user's.
        name = f"{name}-{os.getpid()}"
        self.path = f"{name}.sock"
        command = ["redis-server", "--port", "0", "--unixsocket", self.path, "--save", "", "--dir", ".", *options]
        self.log = open(f"{name}.log", "w+")
        self.process = subprocess.Popen(command, executable=server, stdout=self.log, stderr=self.log)
        atexit.register(self.end)
        deadline = time.monotonic() + 240
        self.socket = socket.socket(socket.AF_UNIX)
        while self.socket.connect_ex(self.path):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.log.seek(0)
                sys.exit(f"{name} does not start: {self.process.poll()} {self.log.read()}")
            time.sleep(0.02)
        self.file = self.socket.makefile("rb")
        while "\nloading:0" not in self.call("INFO", "persistence"):
            time.sleep(0.02)

    def send(self, *words):
        parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
        self.socket.sendall((f"*{len(words)}\r\n" + "".join(parts)).encode())

    def reply(self):
        line = self.file.readline()
        if line[:1] == b"$":
            length = int(line[1:])
            return None if length < 0 else self.file.read(length + 2)[:-2].decode()
        if line[:1] == b"-" or not line:
            sys.exit(f"the server says {line!r}")
        return line[1:].strip().decode()

    def call(self, *words):
        self.send(*words)
        return self.reply()

    def set_many(self, pairs):
        for key, text in pairs:
            self.send("SET", key, text)
        for _ in pairs:
            self.reply()

    def end(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


first = Redis("first", "--dbfilename", f"saved-{os.getpid()}.rdb", "--rdbcompression", "no")
known = {}


def write(start, stop, step, version):
    keys = range(start, stop, step)
    for at in range(0, len(keys), 200):
        pairs = [(f"k{i}", value(i, version)) for i in keys[at : at + 200]]
        first.set_many(pairs)
        yield dict(pairs)


for part in write(0, count, 1, 0):
    known.update(part)
saves = 0
for version in range(1, 4):
    for part in write(version, count, 7, version):
        known.update(part)
    expected = dict(known)
    # One connection: what was written before is in the child, what comes after is not.
    first.call("BGSAVE")
    for part in write(0, count, 2, version + 100):
        known.update(part)
    deadline = time.monotonic() + 240
    while "rdb_bgsave_in_progress:0" not in first.call("INFO", "persistence"):
        if time.monotonic() > deadline:
            sys.exit("the save does not end")
        time.sleep(0.02)
    if "rdb_last_bgsave_status:ok" not in first.call("INFO", "persistence"):
        first.log.seek(0)
        sys.exit(f"the save failed: {first.log.read()}")
    saves += 1
for key, text in known.items():
    if first.call("GET", key) != text:
        sys.exit(f"{key} is wrong in the server that saved")
first.end()
second = Redis("second", "--dbfilename", f"saved-{os.getpid()}.rdb")
if second.call("DBSIZE") != str(len(expected)):
    sys.exit(f"{second.call('DBSIZE')} keys of {len(expected)}")
for key, text in expected.items():
    if second.call("GET", key) != text:
        sys.exit(f"{key} is wrong in the server that loaded")
second.end()
print(f"{saves} saves, {len(expected)} keys are right")
