"""Below budget: what memfit costs a program that fits. Interleaved pairs and start-up."""
import shlex

from measure import measure
from stats import paired_ratio, spread

LOOP = "i=0; while [ $i -lt {n} ]; do {cmd}; i=$((i+1)); done"


def managed(bench, cmd):
    o = bench.options
    return [o.memfit, "run", "-m", o.below_memory, "-q", *o.memfit_arg, "--", *cmd]


def one(bench, cmd):
    bench.check_time()
    return measure(bench, cmd, timeout=bench.options.run_timeout)


def pairs(bench, label, cmd, count, log):
    """count pairs, the order within a pair alternating."""
    runs = {"plain": [], "memfit": []}
    why = ""
    for i in range(count):
        got = {}
        for kind in ("plain", "memfit") if i % 2 == 0 else ("memfit", "plain"):
            got[kind] = one(bench, cmd if kind == "plain" else managed(bench, cmd))
        bad = [f"{k}: {r['status']} (code {r.get('code')}) {r['stderr'][-200:]}" for k, r in got.items()
               if r["status"] != "ok"]
        if not bad and got["plain"]["output"] != got["memfit"]["output"]:
            bad = ["outputs differ"]
        if bad:
            why = "; ".join(bad)
            log(f"{label}: {why}")
            break
        for k in runs:
            runs[k].append(got[k])
        log(f"{label}: pair {i + 1}/{count}: CPU {got['plain']['cpu_ns'] / 1e9:.3f} -> "
            f"{got['memfit']['cpu_ns'] / 1e9:.3f} s, wall {got['plain']['wall_ns'] / 1e9:.3f} -> "
            f"{got['memfit']['wall_ns'] / 1e9:.3f} s")
    get = lambda kind, key: [r[key] for r in runs[kind]]
    n = len(runs["plain"])
    ok = n and not why
    return {"command": label, "pairs": n, "status": "ok" if ok else "failed", "why": why,
            "cpu": paired_ratio(get("plain", "cpu_ns"), get("memfit", "cpu_ns")) if ok else None,
            "wall": paired_ratio(get("plain", "wall_ns"), get("memfit", "wall_ns")) if ok else None,
            **{f"{k}_{short}": spread(get(k, key)) for k in runs for short, key in (("cpu", "cpu_ns"), ("wall", "wall_ns"))},
            "runs": runs}


def startup(bench, count, repeats, log, command="/bin/true"):
    """ms per process of `count` processes started by one shell, the empty loop subtracted."""
    full = ["sh", "-c", LOOP.format(n=count, cmd=command)]
    empty = ["sh", "-c", LOOP.format(n=0, cmd=command)]
    out = {"count": count, "repeats": repeats, "command": command, "status": "ok"}
    values = {"plain": ([], []), "memfit": ([], [])}
    for i in range(repeats):
        for kind in ("plain", "memfit") if i % 2 == 0 else ("memfit", "plain"):
            wrap = (lambda c: c) if kind == "plain" else (lambda c: managed(bench, c))
            a, b = one(bench, wrap(full)), one(bench, wrap(empty))
            if a["status"] != "ok" or b["status"] != "ok":
                out.update(status="failed", why=a["stderr"] or b["stderr"])
                log(f"start-up, {kind}: failed: {out['why']}")
                return out
            values[kind][0].append((a["wall_ns"] - b["wall_ns"]) / count / 1e6)
            values[kind][1].append(b["wall_ns"] / 1e6)
    for kind, (per, base) in values.items():
        out[kind] = {"per_process_ms": spread(per), "empty_loop_ms": spread(base)}
        log(f"start-up, {kind}: {out[kind]['per_process_ms']['median']:.3f} ms per process")
    for name, key in (("extra_ms_per_process", "per_process_ms"), ("extra_ms_per_run", "empty_loop_ms")):
        out[name] = out["memfit"][key]["median"] - out["plain"][key]["median"]
    return out


def run(bench, items, log):
    """items: [(label, cmd)]. Yields nothing; fills bench.result."""
    o, r = bench.options, bench.result
    r["below"] = []
    if o.startup_count:
        r["startup"] = startup(bench, o.startup_count, o.startup_repeats, log)
        bench.save()
    for label, cmd in items:
        r["below"].append(pairs(bench, label, cmd, o.pairs, log))
        bench.save()


def label_of(cmd):
    return shlex.join(cmd)
