"""Files that programs map: time and bytes read with `memfit run --files` against the kernel's page cache, cold, at the
same total memory."""
import contextlib
import os
import random
import subprocess

import configs
import tuner
import workloads
from host import Refused
from measure import measure
from stats import spread

MIB = 1 << 20
FILE_MIB, QUICK_FILE_MIB = 300, 24
BUDGET_PCT = 33
#: Accesses; passes of a scan.
COUNTS = {"random": 200_000, "skewed": 200_000, "scan": 2}
QUICK_ACCESSES = 8_000
DATA = ("text", "noise")
#: Programs that look records up at random, and how many (workloads/readers.py).
READERS = ("numpy", "sqlite", "lmdb")
LOOKUPS, QUICK_LOOKUPS = 50_000, 2_000
KERNEL, ADVISED, MEMFIT = "kernel", "kernel, MADV_RANDOM", "memfit --files"


def make_file(bench, data, mib):
    if data == "text":
        return workloads.text_input(bench.out, mib)
    path = f"{bench.out}/noise-{mib}.bin"
    if not os.path.exists(path):
        draw = random.Random(1)
        with open(path + ".new", "wb") as f:
            for _ in range(mib):
                f.write(draw.randbytes(MIB))
            f.flush()
            os.fsync(f.fileno())
        os.rename(path + ".new", path)
    return path


def reader(what, kind, path, count):
    """Its command line. That an interpreter is looked for also brings it and the module into the page cache: they count for
    nobody, as the program of the other points."""
    python = workloads.find_python(["sqlite3" if kind == "sqlite" else kind])
    return [python, f"{workloads.HERE}/workloads/readers.py", what, kind, path, str(count)]


def make_readers(bench, mib, points):
    """The file of each program that reads records; a point of a program that is not installed says so."""
    files = {}
    for point in points:
        kind = point["data"]
        path = files[kind] = f"{bench.out}/{kind}-{mib}"
        try:
            make = reader("make", kind, path + ".new", mib)
            if not os.path.exists(path):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path + ".new")
                subprocess.run(make, capture_output=True, check=True, timeout=300)
                os.sync()
                os.rename(path + ".new", path)
        except (workloads.Missing, OSError, subprocess.SubprocessError) as error:
            point["status"], point["why"] = "skipped", str(error)
    return files


def make_cold(bench):
    """All files out of the page cache, but for those that every run needs. These count for nobody then."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3")
    own = os.path.dirname(bench.options.memfit)
    for path in (bench.options.memfit, f"{own}/libmemfit.so", f"{bench.out}/bin/mapread", f"{bench.out}/bin/meter"):
        if os.path.exists(path):
            with open(path, "rb") as f:
                while f.read(MIB):
                    pass


def run(bench, log):
    """Fills bench.result["files"]; rounds alternate over all configurations."""
    if not bench.cgroups or os.geteuid() != 0:
        raise Refused("--files needs root and control groups: the kernel's page cache is limited by them")
    quick = bench.options.quick
    mib = QUICK_FILE_MIB if quick else FILE_MIB
    budget = max(mib * BUDGET_PCT // 100, 17) * MIB
    points = bench.result["files"] = []
    for data in DATA:
        for order, count in COUNTS.items():
            count = min(count, QUICK_ACCESSES) if quick else count
            names = (KERNEL, MEMFIT) if order == "scan" else (KERNEL, ADVISED, MEMFIT)
            points.append({"data": data, "order": order, "count": count, "mib": mib, "budget_bytes": budget,
                           "status": "ok", "why": "", "runs": {name: [] for name in names}})
    files = {data: make_file(bench, data, mib) for data in DATA}
    lookups = [{"data": kind, "order": "lookups", "count": QUICK_LOOKUPS if quick else LOOKUPS, "mib": mib, "budget_bytes": budget,
                "status": "ok", "why": "", "runs": {KERNEL: [], MEMFIT: []}} for kind in READERS]
    files |= make_readers(bench, mib, lookups)
    points += lookups
    try:
        run_rounds(bench, points, files, log)
    finally:
        # In the small budgets of --quick the kernel's own memory for the processes is more than the tolerance.
        for point in [] if quick else points:
            check_peak(point, bench.options.tolerance)


def run_rounds(bench, points, files, log):
    for _ in range(bench.options.rounds):
        for point in points:
            for name in point["runs"]:
                if point["status"] == "ok":
                    one_run(bench, point, name, files[point["data"]], log)
            bench.save()


def one_run(bench, point, name, path, log):
    bench.check_time()
    make_cold(bench)
    cmd = [f"{bench.out}/bin/mapread", path, point["order"], str(point["count"])]
    if point["data"] in READERS:
        cmd = reader("read", point["data"], path, point["count"])
    stats, limit = f"{bench.out}/run.stats", point["budget_bytes"]
    if name == ADVISED:
        cmd.append("advised")
    if name == MEMFIT:
        managed = configs.Memfit(bench).command(cmd, point["budget_bytes"], stats)
        cmd, limit = [*managed[:2], "--files", *managed[2:]], None
    got = measure(bench, cmd, limit, bench.options.run_timeout, read_iops=bench.options.read_iops)
    if name == MEMFIT:
        bench.add_stats(got, stats)
    outputs = {r["output"] for runs in point["runs"].values() for r in runs} | {got["output"]}
    if got["status"] != "ok" or len(outputs) > 1:
        point["status"] = "wrong" if got["status"] == "ok" else "failed"
        point["why"] = f"{name}: " + ("outputs differ" if got["status"] == "ok" else f"{got['status']} {got['stderr'][-200:]}")
    point["runs"][name].append(got)
    log(f"{point['data']} {point['order']}, {name}: {got['status']}, {got.get('wall_ns', 0) / 1e9:.2f} s, "
        f"{(got.get('io_read') or 0) / MIB:.0f} MiB read")


def check_peak(point, tolerance):
    """Equal memory or no comparison. The kernel's runs have the budget as their limit, and memfit's have none: so it is compared with
    what their control group was charged, which includes the page cache."""
    peak = spread([r.get("charged_peak") for r in point["runs"][MEMFIT]])
    if point["status"] != "ok" or not peak:
        return
    error = peak["median"] / point["budget_bytes"] - 1
    if tuner.off(error, tolerance, tuned=False):
        point["status"], point["why"] = "off", f"{MEMFIT}: median peak {error * 100:+.1f} % of the budget"


def summary(points):
    """[(point, name, {wall_ns, cpu_ns, io_read, charged_peak: spread})]"""
    keys = ("wall_ns", "cpu_ns", "io_read", "charged_peak")
    return [(point, name, {key: spread([r[key] for r in runs if r.get(key) is not None]) for key in keys})
            for point in points for name, runs in point["runs"].items()]
