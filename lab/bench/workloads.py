"""The workloads: how to build and call them. Sources are in workloads/."""
import glob
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))

# Arguments at full size (natural peak 300 to 500 MiB, 2 to 6 s on a 2020s core) and for --quick.
SIZES = {
    "randrw": ((400, 1_000_000), (64, 60_000)),
    "sweep": ((400, 12), (64, 6)),
    "sort": ((220,), (40,)),
    "npsort": ((380,), (60,)),
    "pygraph": ((300, 400_000), (56, 30_000)),
    "sqlmem": ((360, 200_000), (64, 20_000)),
    "randrw2t": ((400, 1_000_000, 2), (64, 60_000, 2)),
    # A working set that moves within cold memory.
    "phases": ((400, 4, 400_000), (64, 4, 30_000)),
    "halfphases": ((400, 4, 400_000), (64, 4, 30_000)),
    # More than RAM holds even compressed: to be run at a budget of 50 % and less.
    "noisesweep": ((300, 4), (64, 2)),
    "noiserand": ((300, 60_000, 1, 50), (64, 6_000, 1, 50)),
    "noiseread": ((300, 60_000, 1, 0), (64, 6_000, 1, 0)),
    # Pages of which some do not compress.
    "mixed30rand": ((300, 200_000, 1, 50), (64, 6_000, 1, 50)),
    "mixed50rand": ((300, 200_000, 1, 50), (64, 6_000, 1, 50)),
    "mixed95rand": ((300, 200_000, 1, 50), (64, 6_000, 1, 50)),
    "halfsweep": ((400, 6), (64, 2)),
    "halfrand": ((400, 100_000, 1, 50), (64, 6_000, 1, 50)),
    # Whole trees.
    "redisget": (("get", 250_000, 1_000_000), ("get", 40_000, 50_000)),
    "redisset": (("set", 250_000, 1_000_000), ("set", 40_000, 50_000)),
    "makej2": ((2,), (1,)),
    "launch": ((300, 200), (56, 20)),
    "prefork": ((240, 6, 60_000), (48, 3, 2_000)),
    "preread": ((150, 6, 60_000, 30), (30, 3, 2_000, 6)),
    # Processes that start at the same time: one thread each, all pages written, seed, processes.
    "randrw16p": ((400, 300_000, 1, 100, 1, 16), (64, 6_000, 1, 100, 1, 4)),
    "randrw64p": ((400, 300_000, 1, 100, 1, 64), (64, 6_000, 1, 100, 1, 8)),
    "randrw200p": ((400, 300_000, 1, 100, 1, 200), (64, 6_000, 1, 100, 1, 16)),
}
NOISE = {"noise": 8, "half": 4}  # random words of eight
MIXED = (30, 50, 95)  # pages of a hundred
DEFAULT = ["randrw", "sweep", "sort", "npsort", "pygraph", "sqlmem"]
TITLES = {
    "randrw": "random read/write with verify", "sweep": "sequential sweep", "sort": "GNU sort",
    "npsort": "numpy sort", "pygraph": "CPython object graph", "sqlmem": "SQLite in memory",
    "randrw2t": "random read/write, 2 threads", "randrw16p": "random read/write, 16 processes",
    "randrw64p": "random read/write, 64 processes", "randrw200p": "random read/write, 200 processes",
    "phases": "working set that moves", "halfphases": "working set that moves, 2:1",
    "noisesweep": "sequential sweep, incompressible", "noiserand": "random read/write, incompressible",
    "noiseread": "random read, incompressible", "halfsweep": "sequential sweep, 2:1", "halfrand": "random read/write, 2:1",
    "redisget": "redis GET", "redisset": "redis SET",
    **{f"mixed{share}rand": f"random read/write, {share} % incompressible pages" for share in MIXED},
    "makej2": "make -j2 of zstd", "launch": "launch storm beside a big program",
    "prefork": "server with forked workers, CPython data", "preread": "server with forked workers, data that they read",
}


@dataclass
class Workload:
    name: str
    args: tuple
    cmd: list


class Missing(Exception):
    pass


def build(out):
    """Compile meter and the C workloads; cheap when nothing changed."""
    os.makedirs(f"{out}/bin", exist_ok=True)
    cc = os.environ.get("CC", "cc")
    plain = ("meter.c", "workloads/randrw.c", "workloads/sweep.c", "workloads/textgen.c",
             "workloads/mapread.c", "workloads/phases.c")
    builds = [(src, os.path.splitext(os.path.basename(src))[0], []) for src in plain]
    for kind, words in NOISE.items():
        builds += [(f"workloads/{src}.c", f"{kind}{src}", [f"-DNOISE={words}"]) for src in ("sweep", "randrw", "phases")]
    builds += [("workloads/randrw.c", f"mixed{share}rand", [f"-DMIXED={share}"]) for share in MIXED]
    for src, name, flags in builds:
        path, exe = f"{HERE}/{src}", f"{out}/bin/{name}"
        newest = max(os.path.getmtime(path), os.path.getmtime(f"{HERE}/workloads/pages.h"))
        if not os.path.exists(exe) or os.path.getmtime(exe) < newest:
            subprocess.run([cc, "-O2", "-pthread", *flags, "-o", exe, path], check=True)
    return f"{out}/bin"


def find_python(modules):
    """The first interpreter that has the modules: they are often only in the distribution's own."""
    seen = []
    for p in (sys.executable, shutil.which("python3"), "/usr/bin/python3"):
        if p and os.path.exists(p) and p not in seen:
            seen.append(p)
            if subprocess.run([p, "-c", f"import {','.join(modules)}"], capture_output=True).returncode == 0:
                return p
    raise Missing(f"no python3 with {', '.join(modules)} (tried {', '.join(seen)})")


def text_input(out, mib):
    path = f"{out}/log-{mib}.txt"
    if not os.path.exists(path):
        with open(path + ".new", "wb") as f:
            subprocess.run([f"{out}/bin/textgen", str(mib)], stdout=f, check=True)
        os.rename(path + ".new", path)
    with open(path, "rb") as f:  # into the page cache, outside the run's cgroup
        while f.read(1 << 20):
            pass
    return path


def c_project(out):
    """A makefile for the C sources of zstd, which the build of memfit has fetched."""
    home = os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo")
    found = sorted(glob.glob(f"{home}/registry/src/*/zstd-sys-*/zstd/lib"))
    if not found or not shutil.which("make"):
        raise Missing("no make, or no sources of zstd in cargo's registry")
    path = f"{out}/zstd.mk"
    text = f"""S := {found[-1]}
FILES := $(wildcard $S/common/*.c $S/compress/*.c $S/decompress/*.c $S/dictBuilder/*.c)
OBJECTS := $(notdir $(FILES:.c=.o))
VPATH := $S/common:$S/compress:$S/decompress:$S/dictBuilder
lib.a: $(OBJECTS)
\t@ar rcD $@ $^
%.o: %.c
\t@$(CC) -O$(LEVEL) -g -ffile-prefix-map=$(CURDIR)=. -DZSTD_DISABLE_ASM -I$S -c -o $@ $<
"""
    with open(path, "w") as f:
        f.write(text)
    return path


def prepare(name, out, quick):
    args = SIZES[name][1 if quick else 0]
    text = [str(a) for a in args]
    if name in ("randrw", "randrw2t", "randrw16p", "randrw64p", "randrw200p"):
        cmd = [f"{out}/bin/randrw", *text]
    elif name in ("noisesweep", "halfsweep", "phases", "halfphases") or name.startswith("mixed"):
        cmd = [f"{out}/bin/{name}", *text]
    elif name in ("noiserand", "noiseread", "halfrand"):
        cmd = [f"{out}/bin/{name[:5] if name[0] == 'n' else 'half'}randrw", *text]
    elif name == "sweep":
        cmd = [f"{out}/bin/sweep", *text]
    elif name == "sort":
        cmd = ["sh", "-c", 'sort -S 8G --parallel=1 "$1" | sha256sum', "sh", text_input(out, args[0])]
    elif name in ("redisget", "redisset"):
        if not shutil.which("redis-benchmark") or not (shutil.which("redis-server") or shutil.which("redis-check-rdb")):
            raise Missing("no redis-benchmark with a server (Debian: redis-tools)")
        cmd = [find_python(["socket"]), f"{HERE}/workloads/redis.py", *text]
    elif name == "makej2":
        line = 'd=$(mktemp -d) && cd "$d" && make -s -j2 -f "$1" LEVEL="$2" && sha256sum lib.a; rm -rf "$d"'
        cmd = ["sh", "-c", line, "sh", c_project(out), *text]
    elif name in ("launch", "prefork", "preread"):
        script = "launch" if name == "launch" else "prefork"
        cmd = [find_python(["zlib"]), f"{HERE}/workloads/{script}.py", *text]
    else:
        needs = {"npsort": ["numpy"], "sqlmem": ["sqlite3"], "pygraph": ["random"]}[name]
        cmd = [find_python(needs), f"{HERE}/workloads/{name}.py", *text]
    return Workload(name, args, cmd)


def environment(out):
    """The same for every run; no hash seeds, no locale, no .pyc writes."""
    keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "USER", "LD_LIBRARY_PATH")}
    os.makedirs(f"{out}/tmp", exist_ok=True)
    return {**keep, "LC_ALL": "C", "TMPDIR": f"{out}/tmp", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
