"""The machine: facts for the report, cgroups v1 and v2, counters."""
import glob
import os
import platform
import re
import shutil
import subprocess

from journal import read, write, zram_devices

BASE = "memfit-bench"
SYS = "/sys"


class Refused(Exception):
    """The bench cannot or must not start; the text says why and what to do."""


def first_line(cmd):
    try:
        r = subprocess.run(cmd, capture_output=True, text=True, timeout=20)
        return (r.stdout or r.stderr).strip().splitlines()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return None


def meminfo(key):
    m = re.search(rf"^{key}:\s+(\d+) kB", read("/proc/meminfo"), re.M)
    return int(m[1]) * 1024 if m else None


def vmstat():
    return {k: int(v) for k, v in (l.split() for l in read("/proc/vmstat").splitlines())
            if k in ("pswpin", "pswpout", "zswpin", "zswpout", "zswpwb")}


def cpu_ticks():
    """(busy, all) ticks of the machine, to tell how much others ran."""
    v = [int(x) for x in read("/proc/stat").splitlines()[0].split()[1:9]]
    return sum(v) - v[3] - v[4], sum(v)


def block_device(path):
    """The device and file system that hold a path: ("vda", "ext4")."""
    dev = os.stat(path).st_dev
    want, fs = f"{os.major(dev)}:{os.minor(dev)}", "?"
    for line in read("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2] == want:
            fs = right.split()[0]
    link = f"{SYS}/dev/block/{want}"
    return (os.path.basename(os.path.realpath(link)) if os.path.exists(link) else None), fs


def whole_disk(path):
    """The disk that holds a path, not its partition: ("vda", "254:0"). None where that is no single disk (overlay, btrfs)."""
    dev = os.stat(path).st_dev
    folder = os.path.realpath(f"{SYS}/dev/block/{os.major(dev)}:{os.minor(dev)}")
    if os.path.exists(f"{folder}/partition"):
        folder = os.path.dirname(folder)
    number = read(f"{folder}/dev")
    return (os.path.basename(folder), number) if number else None


def disk_bytes(device):
    """(read, written) bytes of a block device since boot; everybody's, not only ours."""
    text = read(f"/sys/class/block/{device}/stat") if device else None
    if not text:
        return None
    v = text.split()
    return int(v[2]) * 512, int(v[6]) * 512


def facts(out, memfit, workload_python):
    cpu = re.search(r"^model name\s*:\s*(.*)$", read("/proc/cpuinfo"), re.M)
    device, fs = block_device(out)
    disk = whole_disk(out)
    queue = f"{SYS}/block/{disk[0] if disk else None}/queue"
    return {
        "cpu": cpu[1] if cpu else platform.processor(),
        "cpus": os.cpu_count(),
        "ram_bytes": meminfo("MemTotal"),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "disk": {"device": device, "filesystem": fs, "rotational": {"0": False, "1": True}.get(read(f"{queue}/rotational")),
                 "scheduler": read(f"{queue}/scheduler"), "size_bytes": int(read(f"/sys/class/block/{device}/size", "0")) * 512},
        "thp": read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "mglru": read("/sys/kernel/mm/lru_gen/enabled"),
        "swappiness": read("/proc/sys/vm/swappiness"),
        "page_cluster": read("/proc/sys/vm/page-cluster"),
        "loadavg_at_start": read("/proc/loadavg"),
        "virtualised": bool(re.search(r"^flags.*\bhypervisor\b", read("/proc/cpuinfo"), re.M)),
        "memfit": first_line([memfit, "--version"]) if memfit else None,
        "python": workload_python and first_line([workload_python, "--version"]),
        "sort": shutil.which("sort") and first_line(["sort", "--version"]),
    }


class Cgroups:
    """Fresh cgroups for each run, under one folder of ours in each hierarchy."""

    def __init__(self, version, roots):
        self.version, self.roots = version, roots  # roots: controller -> our base folder

    @classmethod
    def detect(cls, parent=None):
        mounts = [l.split() for l in read("/proc/mounts").splitlines()]
        v2 = [m[1] for m in mounts if m[2] == "cgroup2"]
        v1 = {c: m[1] for m in mounts if m[2] == "cgroup" for c in m[3].split(",")}
        for root in v2:
            if "memory" in (read(f"{root}/cgroup.controllers") or "").split():
                return cls(2, {"unified": os.path.join(root, (parent or "").strip("/"), BASE)})
        if "memory" in v1:
            return cls(1, {c: os.path.join(v1[c], (parent or "").strip("/"), BASE)
                           for c in ("memory", "cpuacct", "blkio") if c in v1})
        raise Refused("no memory cgroup controller (neither v2 nor v1) is mounted")

    def create_base(self, journal):
        for path in self.roots.values():
            if os.path.isdir(path):
                raise Refused(f"{path} exists: another bench runs, or one was killed; "
                              "if none runs, call lab/bench/restore (or rmdir it)")
        if self.version == 2:
            top = os.path.dirname(self.roots["unified"])
            self._enable(top, journal)
        for path in self.roots.values():
            journal.add("cgroup", path=path)
            os.mkdir(path)
        if self.version == 2:
            self._enable(self.roots["unified"], None)
        use = f"{self.roots.get('memory')}/memory.use_hierarchy"
        if self.version == 1 and read(use) == "0":
            write(use, 1)

    @staticmethod
    def _enable(folder, journal):
        have = (read(f"{folder}/cgroup.subtree_control") or "").split()
        can = (read(f"{folder}/cgroup.controllers") or "").split()
        for c in ("memory", "cpu", "io"):
            if c in can and c not in have:
                path = f"{folder}/cgroup.subtree_control"
                entry = journal and journal.add("write", path=path, old=f"-{c}")
                try:
                    write(path, f"+{c}")
                except OSError:
                    if entry:
                        journal.drop(entry)
                    raise

    def create(self, name, journal):
        """One fresh cgroup; memory first in the result's list of folders."""
        dirs, entries = [], []
        for path in self.roots.values():
            entries.append(journal.add("cgroup", path=f"{path}/{name}"))
            os.mkdir(f"{path}/{name}")
            dirs.append(f"{path}/{name}")
        return Cgroup(self, dict(zip(self.roots, dirs)), entries)


class Cgroup:
    def __init__(self, owner, dirs, entries):
        self.version, self.dirs, self.entries = owner.version, dirs, entries
        self.memory = dirs["memory" if self.version == 1 else "unified"]
        self.stat = f"{self.memory}/memory.stat"
        self.stat_prefix = "total_" if self.version == 1 else ""

    def limit(self, size):
        write(f"{self.memory}/" + ("memory.limit_in_bytes" if self.version == 1 else "memory.max"), size)

    def read_iops(self, place, most):
        """Limits read operations a second on the disk of a place. The kernel takes no partitions."""
        disk = whole_disk(place)
        if not disk:
            raise Refused(f"--read-iops: {place} is not on one disk (overlay, btrfs?); give --out on a disk with ext4 or xfs")
        try:
            if self.version == 1:
                write(f"{self.dirs['blkio']}/blkio.throttle.read_iops_device", f"{disk[1]} {most}")
            else:
                write(f"{self.dirs['unified']}/io.max", f"{disk[1]} riops={most}")
        except (OSError, KeyError) as e:
            raise Refused(f"--read-iops: the kernel limits no reads of {disk[0]} ({e}); it takes the controller blkio or io") from None

    def swappiness(self, value):
        if self.version == 1:
            write(f"{self.memory}/memory.swappiness", value)

    def procs(self):
        return [int(p) for p in (read(f"{self.memory}/cgroup.procs") or "").split()]

    def _table(self, path):
        return dict(l.split(None, 1) for l in (read(path) or "").splitlines() if " " in l)

    def counters(self):
        """CPU in ns, charged peak, OOM kills, attributed disk bytes; None where the kernel has none."""
        if self.version == 2:
            d = self.dirs["unified"]
            cpu, ev = self._table(f"{d}/cpu.stat"), self._table(f"{d}/memory.events")
            io = [dict(x.split("=") for x in l.split()[1:] if "=" in x)
                  for l in (read(f"{d}/io.stat") or "").splitlines()]
            ns = lambda k: int(cpu[k]) * 1000 if k in cpu else None
            peak = read(f"{d}/memory.peak")
            return {"cpu_ns": ns("usage_usec"), "user_ns": ns("user_usec"), "sys_ns": ns("system_usec"),
                    "charged_peak": int(peak) if peak else None, "oom_kills": int(ev.get("oom_kill", 0)),
                    "io_read": sum(int(x.get("rbytes", 0)) for x in io),
                    "io_written": sum(int(x.get("wbytes", 0)) for x in io)}
        acct, blk = self.dirs.get("cpuacct"), self.dirs.get("blkio")
        num = lambda p: int(read(p)) if p and read(p) else None
        service = (read(f"{blk}/blkio.throttle.io_service_bytes") or "") if blk else ""
        total = lambda op: sum(int(l.split()[2]) for l in service.splitlines() if f" {op} " in l)
        oom = self._table(f"{self.memory}/memory.oom_control")
        return {"cpu_ns": num(f"{acct}/cpuacct.usage"), "user_ns": num(f"{acct}/cpuacct.usage_user"),
                "sys_ns": num(f"{acct}/cpuacct.usage_sys"),
                "charged_peak": num(f"{self.memory}/memory.max_usage_in_bytes"),
                "oom_kills": int(oom.get("oom_kill", 0)),
                "io_read": total("Read") if blk else None, "io_written": total("Write") if blk else None}


def snapshot():
    """The state that a bench must leave as it found it."""
    zram = {n: (read(f"/sys/block/{n}/disksize"), read(f"/sys/block/{n}/comp_algorithm")) for n in zram_devices()}
    zswap = {os.path.basename(p): read(p) for p in sorted(glob.glob("/sys/module/zswap/parameters/*"))}
    mounts = [l.split()[1] for l in read("/proc/mounts").splitlines() if l.split()[2] in ("cgroup", "cgroup2")]
    ours = [f"{m}/{BASE}" for m in mounts if os.path.isdir(f"{m}/{BASE}")]
    return {"swaps": read("/proc/swaps"), "zram": zram, "zswap": zswap, "cgroups": ours,
            "swappiness": read("/proc/sys/vm/swappiness"), "page_cluster": read("/proc/sys/vm/page-cluster")}
