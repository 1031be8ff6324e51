"""Scale: what a page fault costs, by threads, by processes and by size. All points do the same per page."""
import configs
import host
from stats import spread
from workloads import Workload

MIB = 1 << 20
#: Random operations for each page, beside the fill before them and the check of all pages after them.
OPS_PER_PAGE = 3
#: Of all memory, for threads and processes.
TOTAL_MIB = 400
BUDGET_PCT = 50
KINDS = {"threads": (1, 2, 4, 16, 64), "processes": (1, 2, 4, 16, 64, 200), "MiB": (100, 400, 1600, 6400)}
QUICK = {"threads": (1, 4), "processes": (1, 4), "MiB": (40, 60)}
QUICK_MIB = 40


def points(bench):
    """[(kind, value, MiB, command)]; those that RAM does not hold twice are left out."""
    quick = bench.options.quick
    total = QUICK_MIB if quick else TOTAL_MIB
    out = []
    for kind, values in (QUICK if quick else KINDS).items():
        for n in values:
            mib = n if kind == "MiB" else total
            ops = mib * 256 * OPS_PER_PAGE
            if mib * MIB * 2 > host.meminfo("MemTotal"):
                bench.note(f"{n} {kind} left out: too much for this machine")
                continue
            threads, processes = (n if kind == name else 1 for name in ("threads", "processes"))
            args = (mib, ops, threads, 100, 1, processes)
            out.append((kind, n, mib, [f"{bench.out}/bin/randrw", *map(str, args)]))
    return out


def run(bench, log):
    """Fills bench.result["scale"]; rounds alternate over all points."""
    r = bench.result
    r["scale"] = [{"kind": kind, "value": n, "mib": mib, "command": cmd, "status": "ok", "why": "", "rounds": []}
                  for kind, n, mib, cmd in points(bench)]
    for _ in range(bench.options.rounds):
        for point in r["scale"]:
            if point["status"] == "ok":
                one_round(bench, point, log)
                bench.save()


def one_round(bench, point, log):
    work = Workload("randrw", (), point["command"])
    plain = bench.run_once(configs.Unlimited(bench), work)
    if not is_right(point, "without memfit", plain, log):
        return
    budget = int((plain.get("peak_total") or point["mib"] * MIB) * BUDGET_PCT / 100)
    managed = bench.run_once(configs.Memfit(bench), work, budget=budget)
    if not is_right(point, "memfit", managed, log, plain["output"]):
        return
    this = {"budget_bytes": budget, "plain": plain, "memfit": managed, **costs(plain, managed)}
    point["rounds"].append(this)
    told = f"{this['cpu_per_fault_ns'] / 1000:.1f} us a fault" if this["faults"] else "no page faults"
    log(f"{point['value']} {point['kind']}: {told}")


def is_right(point, name, got, log, output=None):
    """Whether a run is to be counted; else says why not."""
    if got["status"] != "ok":
        point["status"], point["why"] = "failed", f"{name}: {got['status']} (code {got.get('code')}) {got['stderr'][-200:]}"
    elif output not in (None, got["output"]):
        point["status"], point["why"] = "wrong", "outputs differ"
    if point["status"] != "ok":
        log(f"{point['value']} {point['kind']}: {point['why']}")
    return point["status"] == "ok"


def costs(plain, managed):
    """What memfit adds to the run, for each page fault; None without faults."""
    faults = ((managed.get("stats") or {}).get("faults") or {}).get("total")
    if not faults:
        return {"faults": faults, "cpu_per_fault_ns": None, "wall_per_fault_ns": None}
    return {"faults": faults, "cpu_per_fault_ns": (managed["cpu_ns"] - plain["cpu_ns"]) / faults,
            "wall_per_fault_ns": (managed["wall_ns"] - plain["wall_ns"]) / faults}


def summary(points):
    """[(point, CPU and elapsed time a fault: spread, CPU time over that of the first point of its kind)]"""
    out, first = [], {}
    for point in points:
        cpu, wall = (spread([r[key] for r in point["rounds"]]) for key in ("cpu_per_fault_ns", "wall_per_fault_ns"))
        base = first.setdefault(point["kind"], cpu["median"] if cpu else 0)
        out.append((point, cpu, wall, cpu["median"] / base if cpu and base > 0 else None))
    return out
