#!/usr/bin/env python3
"""Samples pages of real heaps: lab/bench/heaps.py DIRECTORY [NAME...]

Starts each program with a fixed workload, stops it when its heap stands, and writes random runs of 16 neighbouring pages
of its private anonymous memory, chosen by a seed, to DIRECTORY/NAME.pages. The programs are killed at the end. What
this machine lacks is skipped, and said. Python's standard library; root is not needed.
"""
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

PAGE = 4096
RUN = 16
RUNS = 128
SEED = 4
# Time until a heap must stand, seconds.
PATIENCE = 90

PYTHON_OBJECTS = r"""
import random
r = random.Random(1)
class Node:
    def __init__(self, i):
        self.key, self.weight, self.links, self.name = i, r.random(), [], "node-%d" % i
nodes = [Node(i) for i in range(120000)]
for n in nodes:
    n.links = [nodes[r.randrange(len(nodes))] for _ in range(4)]
index = {n.name: n for n in nodes}
rows = [{"id": i, "user": "user%d" % r.randrange(5000), "score": r.randrange(1000), "tags": ("a%d" % (i % 7), "b")}
        for i in range(60000)]
words = " ".join(n.name for n in nodes).split()
"""

NUMPY_ARRAYS = r"""
import numpy as np
g = np.random.default_rng(1)
n = 1 << 20
floats = g.standard_normal(n)
singles = g.standard_normal(n).astype(np.float32)
integers = g.integers(0, 1000, n)
order = np.argsort(floats)
counts = np.bincount(integers, minlength=n)
steps = np.cumsum(g.integers(0, 50, n))
mask = (g.random(n) < 0.01).astype(np.int64)
image = (np.add.outer(np.arange(1024), np.arange(1024)) % 251).astype(np.uint8) + g.integers(0, 4, (1024, 1024), dtype=np.uint8)
signal = np.round(np.sin(np.arange(n) / 1000) * 1e4) / 100
"""

NODE_OBJECTS = r"""
let seed = 1;
const random = n => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
const feed = [];
for (let i = 0; i < 60000; i++)
  feed.push({ id: i, user: { name: 'user' + random(5000), followers: random(100000) },
    text: 'message ' + i + ' of a feed about ' + ['rain', 'trains', 'football', 'music'][random(4)],
    likes: random(500), tags: ['t' + random(50), 't' + random(50)] });
const parsed = JSON.parse(JSON.stringify(feed));
const byUser = new Map();
for (const m of parsed) { if (!byUser.has(m.user.name)) byUser.set(m.user.name, []); byUser.get(m.user.name).push(m); }
process.stdout.write('ready\n');
setInterval(() => { globalThis.keep = [feed, parsed, byUser]; }, 1 << 30);
"""

JAVA_OBJECTS = r"""
import java.util.*;
public class Heap {
  record Item(int id, String name, double price, List<String> tags) {}
  static Object keep;
  public static void main(String[] args) throws Exception {
    Random r = new Random(1);
    Map<String, Item> items = new HashMap<>();
    TreeMap<Integer, List<Item>> byPrice = new TreeMap<>();
    for (int i = 0; i < 150000; i++) {
      Item item = new Item(i, "item " + i, r.nextInt(100000) / 100.0, List.of("tag" + r.nextInt(40), "tag" + r.nextInt(40)));
      items.put(item.name(), item);
      byPrice.computeIfAbsent((int) item.price(), k -> new ArrayList<>()).add(item);
    }
    keep = List.of(items, byPrice);
    System.gc();
    System.out.println("ready");
    Thread.sleep(1L << 40);
  }
}
"""

SQLITE_TABLES = r"""
create table orders(id integer primary key, customer text, item text, amount real, day integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 250000)
insert into orders
select i, 'customer ' || (i * 7919 % 9973), 'item ' || (i * 31 % 500), (i * 37 % 10000) / 100.0, i / 700 from n;
create index by_customer on orders(customer);
create index by_day on orders(day, item);
.print ready
"""


class Missing(Exception):
    pass


def need(program):
    path = shutil.which(program)
    if not path:
        raise Missing(f"there is no {program}")
    return path


def wait_for(child, line=b"ready"):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        text = child.stdout.readline()
        if text.strip() == line:
            return
        if not text:
            break
    raise Missing("the program did not get ready")


def start(command, out, text=None):
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=out)
    if text:
        child.stdin.write(text.encode())
        child.stdin.flush()
    wait_for(child)
    return child


def python_with(module=None):
    for python in ("/usr/bin/python3", shutil.which("python3") or ""):
        if python and subprocess.run([python, "-c", f"import {module or 'sys'}"], capture_output=True).returncode == 0:
            return python
    raise Missing(f"no python3 has {module}")


def cpython(out):
    return start([python_with(), "-c", PYTHON_OBJECTS + "\nprint('ready', flush=True)\nimport time\ntime.sleep(1e6)"], out)


def numpy(out):
    return start([python_with("numpy"), "-c", NUMPY_ARRAYS + "\nprint('ready', flush=True)\nimport time\ntime.sleep(1e6)"], out)


def node(out):
    return start([need("node"), "-e", NODE_OBJECTS], out)


def java(out):
    with open(f"{out}/Heap.java", "w") as f:
        f.write(JAVA_OBJECTS)
    need("javac")
    return start([need("java"), "-Xmx512m", "Heap.java"], out)


def sqlite(out):
    return start([need("sqlite3"), ":memory:"], out, SQLITE_TABLES)


def redis(out):
    # Debian's checker is the server when it is called so.
    server = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    if not server:
        raise Missing("there is no redis-server")
    socket_path = f"{out}/redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", socket_path, "--save", "", "--daemonize", "no"]
    child = subprocess.Popen(command, executable=server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=out)
    try:
        fill_redis(socket_path)
    except OSError as error:
        child.kill()
        raise Missing(f"redis: {error}") from error
    return child


def fill_redis(path):
    import socket
    end, connection = time.monotonic() + 10, socket.socket(socket.AF_UNIX)
    while True:
        try:
            connection.connect(path)
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
    r, replies = random.Random(SEED), connection.makefile("rb")

    def commands(i):
        token, city = r.getrandbits(128), r.choice(["Bern", "Lyon", "Oslo", "Graz"])
        session = '{"user":%d,"token":"%032x","seen":%d,"roles":["reader"]}' % (i % 9000, token, 1700000000 + i)
        yield ["SET", f"session:{i}", session]
        yield ["HSET", f"user:{i % 9000}", "name", f"User Number {i % 9000}", "visits", str(i), "city", city]
        yield ["ZADD", "scores", str(r.randrange(100000)), f"player{i}"]
        yield ["RPUSH", f"queue:{i % 50}", "job %d of kind %d" % (i, r.randrange(9))]

    for first in range(0, 60000, 500):
        batch = [c for i in range(first, first + 500) for c in commands(i)]
        data = b"".join(b"*%d\r\n" % len(c) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in c) for c in batch)
        connection.sendall(data)
        for _ in batch:
            replies.readline()
    connection.close()


def gcc(out):
    cc = need("gcc")
    with open(f"{out}/large.c", "w") as f:
        f.write("struct s { int a; double b; const char *c; };\n")
        for i in range(4000):
            f.write(f"int f{i}(int x, struct s *p) {{ int t[16]; for (int i = 0; i < 16; i++) t[i] = x * {i} + i; switch (x % 7) "
                    f"{{ case 0: return t[x & 15]; case 1: p->a += {i}; case 2: return p->a ^ {i}; case 3: p->b *= 1.{i}; "
                    f"return (int)p->b; default: while (x > {i}) x -= t[x & 7] | 1; }} return x; }}\n")
    driver = subprocess.Popen([cc, "-O2", "-g", "-c", "-o", f"{out}/large.o", f"{out}/large.c"], stderr=subprocess.DEVNULL)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and driver.poll() is None:
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/status") as f:
                    status = dict(line.split(":", 1) for line in f if ":" in line)
            except OSError:
                continue
            if status["Name"].strip() == "cc1" and int(status["PPid"]) == driver.pid \
                    and int(status.get("VmRSS", "0 kB").split()[0]) > 100 << 10:
                driver.heap_pid = int(pid)
                return driver
        time.sleep(0.01)
    driver.kill()
    raise Missing("cc1 did not reach 100 MiB")


PROGRAMS = [cpython, redis, java, node, sqlite, numpy, gcc]


def present_runs(pid):
    """Addresses of runs of pages that are all in memory, of private writable mappings without a file (or the heap)."""
    runs = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/pagemap", "rb") as pagemap:
        for line in maps:
            words = line.split()
            name = words[5] if len(words) > 5 else ""
            if not words[1].startswith("rw") or not words[1].endswith("p") or words[4] != "0" or name in ("[stack]", "[vvar]"):
                continue
            first, end = (int(word, 16) for word in words[0].split("-"))
            pagemap.seek(first // PAGE * 8)
            bits = pagemap.read((end - first) // PAGE * 8)
            # Bit 63: in memory. Bit 61: of a file, or shared.
            present = [entry >> 63 == 1 and entry >> 61 & 1 == 0 for (entry,) in struct.iter_unpack("<Q", bits)]
            at = 0
            while at + RUN <= len(present):
                if all(present[at:at + RUN]):
                    runs.append(first + at * PAGE)
                    at += RUN
                else:
                    at += 1
    return runs


def sample(pid, path):
    os.kill(pid, signal.SIGSTOP)
    runs = present_runs(pid)
    chosen = sorted(random.Random(SEED).sample(runs, min(RUNS, len(runs))))
    with open(f"/proc/{pid}/mem", "rb") as memory, open(path, "wb") as out:
        for address in chosen:
            memory.seek(address)
            out.write(memory.read(RUN * PAGE))
    return len(chosen) * RUN, len(runs) * RUN


def take(program, directory):
    with tempfile.TemporaryDirectory() as out:
        child = None
        try:
            child = program(out)
            pid = getattr(child, "heap_pid", child.pid)
            pages, of = sample(pid, f"{directory}/{program.__name__}.pages")
            print(f"heaps: {program.__name__}: {pages} pages of {of} in runs of {RUN}", file=sys.stderr)
        except (Missing, OSError) as error:
            print(f"heaps: SKIPPED {program.__name__}: {error}", file=sys.stderr)
        finally:
            if child:
                for pid in {getattr(child, "heap_pid", child.pid), child.pid}:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                child.wait()


def main(directory, names):
    os.makedirs(directory, exist_ok=True)
    for program in PROGRAMS:
        if not names or program.__name__ in names:
            take(program, directory)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
