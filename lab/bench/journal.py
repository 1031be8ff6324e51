"""What was changed on this machine and how to undo it.

Every change is written to the journal (and to disk) before it is made, so that
`lab/bench/restore` can put everything back even after SIGKILL. Undoing is
idempotent: what is already back is left alone.
"""
import ctypes
import json
import os
import signal
import time

_libc = ctypes.CDLL(None, use_errno=True)


def read(path, otherwise=None):
    try:
        with open(path) as f:
            return f.read().strip()
    except OSError:
        return otherwise


def write(path, value):
    with open(path, "w") as f:
        f.write(str(value))


def start_time(pid):
    text = read(f"/proc/{pid}/stat")
    return int(text.rpartition(")")[2].split()[19]) if text else None


def swaps():
    """Active swap: path -> used bytes."""
    lines = (read("/proc/swaps") or "").splitlines()[1:]
    return {l.split()[0].replace("\\040", " "): int(l.split()[3]) * 1024 for l in lines}


def swapon(path, priority=100):
    if _libc.swapon(os.fsencode(path), 0x8000 | priority):
        raise OSError(ctypes.get_errno(), f"swapon {path}: {os.strerror(ctypes.get_errno())}")


def swapoff(path):
    path = os.path.realpath(path)  # as /proc/swaps has it
    if path in swaps() and _libc.swapoff(os.fsencode(path)):
        raise OSError(ctypes.get_errno(), f"swapoff {path}: {os.strerror(ctypes.get_errno())}")


def zram_devices():
    return sorted((n for n in os.listdir("/sys/block") if n.startswith("zram")), key=lambda n: int(n[4:]))


def kill_cgroup(path, seconds=10):
    """Kill every process of our own cgroup and wait until it is empty."""
    end = time.monotonic() + seconds
    while True:
        pids = (read(f"{path}/cgroup.procs") or "").split()
        if not pids:
            return True
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        if time.monotonic() > end:
            return False
        time.sleep(0.01)


def _retry(action, seconds=5):
    end = time.monotonic() + seconds
    while True:
        try:
            return action()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def undo_cgroup(path):
    if not os.path.isdir(path):
        return
    for name in os.listdir(path):
        if os.path.isdir(f"{path}/{name}"):
            undo_cgroup(f"{path}/{name}")
    kill_cgroup(path)
    _retry(lambda: os.rmdir(path))


def undo_write(path, old):
    now = read(path)
    # "-memory" is how to undo it; the file lists the controllers that are on.
    if path.endswith("/cgroup.subtree_control") and old[1:] not in (now or "").split():
        return
    if now != old:
        write(path, old)


def undo_swapfile(path):
    swapoff(path)
    if os.path.exists(path):
        os.unlink(path)


def remove_zram(name):
    swapoff(f"/dev/{name}")
    if os.path.isdir(f"/sys/block/{name}"):
        _retry(lambda: write(f"/sys/block/{name}/reset", 1))
        _retry(lambda: write("/sys/class/zram-control/hot_remove", name[4:]))


def undo_zram(before, name=None):
    """Remove our device. If we died before its number was known: any new one that was never set up."""
    if name:
        return remove_zram(name)
    for new in set(zram_devices()) - set(before):
        if read(f"/sys/block/{new}/initstate") == "0":
            remove_zram(new)


def undo_zram_reset(name, algorithm):
    """A device that was there, idle, before us: reset it and give it its codec back."""
    swapoff(f"/dev/{name}")
    _retry(lambda: write(f"/sys/block/{name}/reset", 1))
    write(f"/sys/block/{name}/comp_algorithm", algorithm)


UNDO = {"cgroup": undo_cgroup, "write": undo_write, "swapfile": undo_swapfile, "zram": undo_zram,
        "zram_reset": undo_zram_reset}


class Journal:
    def __init__(self, path, entries=None):
        self.path = path
        self.entries = entries if entries is not None else []

    @classmethod
    def load(cls, path):
        with open(path) as f:
            data = json.load(f)
        j = cls(path, data["entries"])
        j.owner = (data["pid"], data["start_time"])
        return j

    def save(self):
        data = {"pid": os.getpid(), "start_time": start_time(os.getpid()), "entries": self.entries}
        with open(self.path + ".new", "w") as f:
            json.dump(data, f, indent=1)
            f.flush()
            os.fsync(f.fileno())
        os.rename(self.path + ".new", self.path)

    def add(self, kind, **args):
        entry = {"kind": kind, "args": args}
        self.entries.append(entry)
        self.save()
        return entry

    def drop(self, entry):
        self.entries.remove(entry)
        self.save()

    def undo(self, entry):
        UNDO[entry["kind"]](**entry["args"])
        self.drop(entry)

    def undo_all(self):
        """Undo everything, last change first, processes before anything else. Returns the failures."""
        failures = []
        for e in self.entries:
            if e["kind"] == "cgroup" and os.path.isdir(e["args"]["path"]):
                kill_cgroup(e["args"]["path"])
        for e in reversed(list(self.entries)):
            try:
                self.undo(e)
            except (OSError, KeyError) as err:
                failures.append(f"{e['kind']} {e['args']}: {err}")
        if not failures and os.path.exists(self.path):
            os.unlink(self.path)
        return failures


def owner_alive(journal):
    pid, started = journal.owner
    return start_time(pid) == started and started is not None
