"""One program under one scheme in a budget: builds the programs, runs `memfit run` within a time bound, reads what it says."""

import json
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass

import host
from stats import spread
from workloads import environment

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
# Where memfit makes its swap file by default.
SWAP_PLACE = "/var/tmp"
# What is kept of the statistics.
KEPT = (
    "budget_bytes",
    "wall_ns",
    "peak",
    "faults",
    "evictions",
    "codecs",
    "pool",
    "swap",
    "scheme",
    "warnings",
    "files",
    "transitions",
)


@dataclass(frozen=True)
class Cell:
    """`config` is the name under which `derive` finds it; `command` a list; `overrides` go to --set. `once`: one round is enough,
    as no statement needs it. `kept`: see `written_back`. `options`: more of `memfit run`."""

    workload: str
    config: str
    command: tuple
    budget: int
    scheme: str
    overrides: tuple = ()
    once: bool = False
    timeout: float = 45
    kept: tuple = ()
    options: tuple = ()

    @property
    def key(self):
        return self.workload, self.config


class Broken(Exception):
    """A workload that does not run at all."""


@dataclass(frozen=True)
class Machine:
    """What a run may use of this machine, so that its proportions are the paper's: CPUs, and reads from the disk a second (writes
    are merged, and nobody waits for them). 0: all of it."""

    cpus: int = 0
    disk_reads: int = 0


class SlowDisk:
    """A control group (blkio, version 1, or io, version 2) whose processes get so many reads a second from the disk under a
    directory."""

    def __init__(self, place, reads):
        self.group, self.procs = None, None
        disk = host.whole_disk(place)
        if not disk:
            raise Broken(f"{place} is not on one disk")
        number = disk[1]
        for root, limit in (
            ("/sys/fs/cgroup/blkio", ("blkio.throttle.read_iops_device", f"{number} {reads}")),
            ("/sys/fs/cgroup", ("io.max", f"{number} riops={reads}")),
        ):
            if self.make(f"{root}/memfit-papers-{os.getpid()}", *limit):
                return
        raise Broken("to slow it down takes root and the cgroup controller blkio or io")

    def make(self, group, name, limit):
        try:
            os.mkdir(group)
        except OSError:
            return False
        self.group, self.procs = group, f"{group}/cgroup.procs"
        try:
            with open(f"{group}/{name}", "w") as f:
                f.write(limit)
        except OSError:
            self.close()
        return self.group is not None

    def close(self):
        """What ran in it has ended, or ends now."""
        give_up = time.monotonic() + 10
        while self.group:
            try:
                os.rmdir(self.group)
                self.group = None
            except OSError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.01)


class Context:
    """Where things are, and what the binary knows."""

    def __init__(self, memfit, work, quick=False):
        self.memfit, self.work, self.quick = memfit, work, quick
        os.makedirs(work, exist_ok=True)
        self.env = environment(work)
        self.naturals, self.known = {}, {}
        self.prefix, self.slow = (), None
        # More options of memfit run.
        self.options = ()

    def become(self, machine):
        """From here on runs get so much of the machine, as far as that can be had. Says what that is."""
        self.leave()
        said = []
        if machine.disk_reads:
            try:
                self.slow = SlowDisk(SWAP_PLACE, machine.disk_reads)
                # What is in the group is all that it starts.
                self.prefix = ("sh", "-c", 'echo $$ >"$0" && exec "$@"', self.slow.procs)
                said.append(f"the disk limited to {machine.disk_reads} reads a second")
            except (Broken, OSError) as why:
                said.append(f"the disk as fast as it is ({why})")
        if machine.cpus:
            cpus = sorted(os.sched_getaffinity(0))[: machine.cpus]
            self.prefix += ("taskset", "-c", ",".join(map(str, cpus)))
            said.append(f"{machine.cpus} CPU" + "s" * (machine.cpus > 1))
        return ", ".join(said)

    def leave(self):
        self.prefix = ()
        if self.slow:
            self.slow.close()
            self.slow = None

    def has(self, scheme):
        if scheme not in self.known:
            said = subprocess.run([self.memfit, "schemes", scheme], capture_output=True, timeout=20)
            self.known[scheme] = said.returncode == 0
        return self.known[scheme]

    def build(self):
        """Compile the programs; cheap when nothing changed."""
        os.makedirs(f"{self.work}/bin", exist_ok=True)
        sources = f"{HERE}/programs"
        headers = [f"{sources}/common.h", f"{HERE}/../workloads/pages.h"]
        for name in sorted(n[:-2] for n in os.listdir(sources) if n.endswith(".c")):
            path, exe = f"{sources}/{name}.c", f"{self.work}/bin/{name}"
            newest = max(map(os.path.getmtime, [path, *headers]))
            if not os.path.exists(exe) or os.path.getmtime(exe) < newest:
                subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", exe, path, "-lm"], check=True)

    def program(self, name, *args):
        return (f"{self.work}/bin/{name}", *map(str, args))

    def many(self, count, *command):
        return self.program("many", count, *command)

    def natural(self, command):
        """Peak without pressure, bytes."""
        if command not in self.naturals:
            r = run(self, Cell("natural", "memfit", command, 1 << 30, "memfit"))
            if r["status"] != "ok":
                raise Broken(f"{' '.join(command)} fails without pressure: {r['status']} {r['stderr']}")
            self.naturals[command] = r["stats"]["peak"]["total_bytes"]
        return self.naturals[command]


def arguments(ctx, cell, stats):
    sets = [x for o in cell.overrides for x in ("--set", o)]
    return [
        *ctx.prefix,
        ctx.memfit,
        "run",
        "-q",
        "-m",
        f"{cell.budget // 1024}K",
        "-s",
        cell.scheme,
        *sets,
        *ctx.options,
        *cell.options,
        "--stats",
        stats,
        "--",
        *cell.command,
    ]


def run(ctx, cell):
    """status: ok | wrong (a page was not what it should be) | failed | timeout; with what the program printed and the
    statistics."""
    stats = f"{ctx.work}/run.stats"
    if os.path.exists(stats):
        os.unlink(stats)
    r = {"status": "failed", "measured": None, "entries": [], "samples": []}
    with open(f"{ctx.work}/run.stderr", "w+b") as errors:
        began = time.monotonic()
        p = subprocess.Popen(
            arguments(ctx, cell, stats),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ctx.work,
            env=ctx.env,
            start_new_session=True,
        )
        try:
            in_time = listen(ctx, p, began + cell.timeout, r)
        finally:
            end(p)
        r["wall"] = time.monotonic() - began
        errors.seek(0)
        r["stderr"] = errors.read()[-600:].decode("utf-8", "replace").strip()
    try:
        with open(stats) as f:
            s = json.load(f)
        r["stats"] = {k: s[k] for k in KEPT if k in s}
    except (OSError, ValueError):
        r["stats"] = {}
    if not in_time:
        r["status"] = "timeout"
    elif "MISMATCH" in r["stderr"]:
        r["status"] = "wrong"
    elif p.returncode == 0 and r["measured"] is not None and r["stats"]:
        r["status"] = "ok"
    return r


def listen(ctx, p, deadline, r):
    """Reads lines until the end; whether it came before the deadline."""
    rest = b""
    with selectors.DefaultSelector() as ready:
        ready.register(p.stdout, selectors.EVENT_READ)
        while True:
            if not ready.select(max(0, deadline - time.monotonic())):
                return False
            got = os.read(p.stdout.fileno(), 65536)
            if not got:
                break
            *lines, rest = (rest + got).split(b"\n")
            for line in lines:
                heed(ctx, p, line.decode("utf-8", "replace"), r)
    try:
        p.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def heed(ctx, p, line, r):
    word, _, rest = line.partition(" ")
    if word == "measured":
        r["measured"] = float(rest)
    elif word == "entry":
        name, turn, took = rest.split()
        r["entries"].append((name, int(turn), float(took)))
    elif word == "sample":
        r["samples"].append({"label": rest, **look(ctx, p.pid)})
        try:
            p.stdin.write(b"\n")
            p.stdin.flush()
        except BrokenPipeError:
            pass


def look(ctx, pid):
    """The counters of our own tree now."""
    try:
        said = subprocess.run([ctx.memfit, "stat", "--json"], capture_output=True, timeout=10).stdout
        tree = next(t for t in json.loads(said) if t.get("pid") == pid)
    except (OSError, ValueError, StopIteration, subprocess.TimeoutExpired):
        return {}
    return {k: tree[k] for k in ("now", "pool", "swap", "faults", "evictions", "codecs", "files") if k in tree}


def end(p):
    """What is left of a run that did not end by itself: memfit ends at a SIGTERM, but the command gives the signal to
    nobody, so its session is killed. The launcher is not waited for before that: until then nobody else can have its number.
    """
    if p.returncode is None:
        p.send_signal(signal.SIGTERM)
        give_up = time.monotonic() + 5
        while time.monotonic() < give_up and not os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            time.sleep(0.01)
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
    for pipe in (p.stdin, p.stdout):
        pipe.close()


def ratio(stats):
    """Compressed to original length of what was compressed; None if nothing was."""
    codecs = stats.get("codecs", {}).values()
    original = sum(c["in_bytes"] for c in codecs)
    return sum(c["out_bytes"] for c in codecs) / original if original else None


def density(run_of):
    """zpages per MiB of pool, the mean of the samples in which it is not empty."""
    got = [
        s["pool"]["zpages"] / (s["pool"]["frames"] * 4096 / MIB)
        for s in run_of["samples"]
        if s.get("pool", {}).get("frames")
    ]
    return sum(got) / len(got) if got else None


def mean_entry(run_of, name=None):
    """Mean time from trigger to answer, without the first turn; of one application or of all."""
    got = [took for n, turn, took in run_of["entries"] if turn and name in (None, n)]
    return sum(got) / len(got) if got else None


def at(stats, path):
    """A number of the statistics by its path with dots; None if it is not there."""
    for part in path.split("."):
        stats = stats.get(part) if isinstance(stats, dict) else None
    return stats


def since_first(run_of, path):
    """How much a counter grew from the first sample to the last; a single sample counts from the start."""
    got = [at(s, path) for s in run_of["samples"]]
    if not got or None in (got[0], got[-1]):
        return None
    return got[-1] - got[0] if len(got) > 1 else got[0]


def written_back(run_of, kept=()):
    """Pages that went from the pool to swap: of all that were written, those that were not refused by the pool first. The pool
    takes a page all the same where the reason is in `kept`."""
    written = since_first(run_of, "evictions.to_swap")
    refused = [since_first(run_of, f"evictions.rejected.{why}") for why in REFUSED if why not in kept]
    return None if written is None or None in refused else max(0, written - sum(refused))


def slots(stats):
    """Bytes of the slots of pages that have left, in a tier of raw slots. A page in staging has its slot already, and is in memory
    still."""
    return max(0, at(stats, "now.swap_bytes") - at(stats, "now.staged_bytes"))


def logical(run_of):
    """What the programs have, in memory and evicted, and memfit's own memory but staging and pool, bytes: the mean of the samples but
    the first."""
    got = [s["now"] for s in run_of["samples"][1:] if at(s, "now.pages")]
    sizes = [sum(now[f"{k}_bytes"] for k in COUNTED) + 4096 * sum(now["pages"][k] for k in EVICTED) for now in got]
    return sum(sizes) / len(sizes) if sizes else None


def worst(statuses):
    return next((s for s in ("wrong", "failed", "timeout", "missing") if s in statuses), "ok")


def summarise(cell, rounds):
    """Medians over the good rounds; the worst status of all."""
    good = [r for r in rounds if r["status"] == "ok"]
    of = lambda f: (spread([f(r) for r in good]) or {}).get("median")
    stat = lambda path: of(lambda r: at(r["stats"], path))
    out = {
        "workload": cell.workload,
        "config": cell.config,
        "scheme": cell.scheme,
        "overrides": list(cell.overrides),
        "budget_bytes": cell.budget,
        # Without the places of this machine.
        "command": [os.path.basename(word) if word.startswith("/") else word for word in cell.command],
        "status": worst([r["status"] for r in rounds] or ["missing"]),
        "rounds": len(rounds),
        "seconds": spread([r["measured"] for r in good]),
        "entry": spread([mean_entry(r) for r in good]),
        "entries": {n: of(lambda r: mean_entry(r, n)) for n in sorted({e[0] for r in good for e in r["entries"]})},
        "ratio": of(lambda r: ratio(r["stats"])),
        "density": of(density),
        "wall": spread([r["wall"] for r in rounds]),
    }
    for key, path in COUNTERS.items():
        out[key] = stat(path)
    for key in ("read_bytes", "write_bytes", "file_read_bytes", "to_swap", "file_dropped"):
        out[f"sampled_{key}"] = of(lambda r: since_first(r, COUNTERS[key]))
    out["sampled_turns"] = of(lambda r: max(0, len(r["samples"]) - 1))
    out["sampled_writeback"] = of(lambda r: written_back(r, cell.kept))
    read, file_read = out["sampled_read_bytes"], out["sampled_file_read_bytes"]
    out["sampled_read_all_bytes"] = None if read is None else read + (file_read or 0)
    out["sampled_logical_bytes"] = of(logical)
    out["sampled_slot_bytes"] = of(lambda r: slots(r["samples"][-1]) if r["samples"] else None)
    out["why"] = next((r["stderr"] for r in rounds if r["status"] != "ok"), "")
    return out


# Pages that are not in memory as they are.
EVICTED = ("staged", "pooled", "swapped", "filled", "evicting")
# The rest of the memory in use, but what holds such pages.
COUNTED = ("resident", "unmanaged", "metadata")
# Why a page goes to swap and not to the pool.
REFUSED = ("incompressible", "by_entropy", "by_need", "in_advance", "pool_full")
COUNTERS = {
    "faults": "faults.total",
    "faults_pool": "faults.pool",
    "faults_swap": "faults.swap",
    "faults_file": "faults.file",
    "file_read_bytes": "files.read_bytes",
    "file_dropped": "evictions.file_dropped",
    "evicted": "evictions.pages",
    "compressed": "evictions.compressed",
    "to_swap": "evictions.to_swap",
    "read_bytes": "swap.read_bytes",
    "write_bytes": "swap.write_bytes",
    "reads": "swap.reads",
    "writes": "swap.writes",
    "peak_bytes": "peak.total_bytes",
    "peak_pool_bytes": "peak.pool_bytes",
    "peak_swap_bytes": "peak.swap_bytes",
    "killed": "transitions.killed",
}


class Cells(dict):
    """Summaries by (workload, config), with the usual quotients; None where a run is missing or failed."""

    def value(self, workload, config, key="seconds"):
        c = self.get((workload, config))
        if not c or c["status"] != "ok":
            return None
        v = c.get(key)
        return v["median"] if isinstance(v, dict) and "median" in v else v

    def quotient_of(self, workload, config, above, below):
        """Of two numbers of one run."""
        a, b = self.value(workload, config, above), self.value(workload, config, below)
        return a / b if a is not None and b else None

    def quotient(self, workload, above, below, key="seconds"):
        a, b = self.value(workload, above, key), self.value(workload, below, key)
        return a / b if a is not None and b else None
