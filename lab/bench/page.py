"""Results as an HTML page. What it shows is described here; `memfit report` makes it (docs/report.md)."""
import json
import os
import subprocess

from host import Refused
from report import MIB, find, good_wall, number, order, status_text
from stats import spread

SCHEMA = 1
KINDS = ("below", "compare")


# -- any page --------------------------------------------------------------
def axis(label, unit="count", log=False):
    return {"label": label, "unit": unit, "log": log}


def series(name, values, colour=None, dashed=False):
    return {"name": name, "values": values, "dashed": dashed, **({} if colour is None else {"colour": colour})}


def figure(title, says, kind, x, y, places, all_series, levels=()):
    return {"title": title, "says": says, "kind": kind, "x": axis(x), "y": y, "places": places, "series": all_series,
            "levels": [{"at": at, "label": label} for at, label in levels]}


def table(title, says, columns, rows):
    """columns: names, or (name, unit)."""
    columns = [(c, "count") if isinstance(c, str) else c for c in columns]
    return {"title": title, "says": says, "columns": [{"name": n, "unit": u} for n, u in columns], "rows": rows}


def section(title, text=(), tables=(), figures=()):
    return {"title": title, "text": list(text), "tables": list(tables), "figures": list(figures)}


def check(memfit, path):
    """Refuses before hours of runs what would fail after them."""
    if not os.access(memfit, os.X_OK):
        raise Refused(f"--report: no memfit binary at {memfit}, and that makes the page: build it, or give --memfit PATH")
    if subprocess.run([memfit, "report", "--help"], capture_output=True).returncode:
        raise Refused(f"--report: {memfit} makes no pages: it is too old, build it again")
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise Refused(f"--report {path}: it is a directory; give a file")
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise Refused(f"--report {path}: {folder} is no directory that can be written to")


def load(path, kinds, schema=SCHEMA):
    """An existing result file, of one of these kinds."""
    try:
        with open(path, encoding="utf-8") as f:
            result = json.load(f)
    except OSError as e:
        raise Refused(f"--from {path}: it cannot be read: {e.strerror}") from None
    except ValueError as e:
        raise Refused(f"--from {path}: it is no JSON: {e}") from None
    got = (result.get("schema"), result.get("kind")) if isinstance(result, dict) else None
    if got not in [(schema, kind) for kind in kinds]:
        raise Refused(f"--from {path}: it is no result of this bench: schema {schema} and kind {' or '.join(kinds)} are expected")
    return result


def make(memfit, describe, result, source, path):
    """The page of a result, which `source` names."""
    try:
        described = json.dumps(describe(result), allow_nan=False)
    except KeyError as e:
        raise Refused(f"{source}: the result has no {e}") from None
    except (AttributeError, IndexError, TypeError, ValueError) as e:
        raise Refused(f"{source}: the result is not as the bench writes it: {e}") from None
    r = subprocess.run([memfit, "report", "-", "--output", path], input=described.encode(), capture_output=True)
    if r.returncode:
        raise Refused(f"--report {path}: {r.stderr.decode('utf-8', 'replace').strip()}")


def facts_of(facts):
    disk = facts["disk"]
    return [
        ["CPU", f"{facts['cpu']}, {facts['cpus']} CPUs{', virtual' if facts['virtualised'] else ''}"],
        ["Kernel", f"Linux {facts['kernel']}"],
        ["Disk", f"{disk['device']} ({disk['filesystem']})"],
        ["Load at the start", facts["loadavg_at_start"].split()[0]],
        ["Version", facts["memfit"] or "no memfit"],
    ]


# -- of lab/bench/run.py ---------------------------------------------------------
def describe(result):
    return describe_below(result) if result["kind"] == "below" else describe_compared(result)


def facts(result):
    o = result["options"]
    return [*facts_of(result["facts"]), ["RAM", f"{number(result['facts']['ram_bytes'], 1 << 30, 1)} GiB"],
            ["Kind of run", "small sizes: a test of the bench, not a measurement" if o["quick"] else "full"],
            ["State", "complete" if result["complete"] else "incomplete: the bench was stopped"]]


def notes(result):
    return [section("Notes", result["notes"])] if result["notes"] else []


def baseline(result, workload, budget, key):
    """Without a limit: the median of the rounds, else the one run that told the natural peak."""
    return good_wall(result, workload, budget, "unlimited", key) or result["natural"][workload][key]


def quotient(result, cell, key, which="median"):
    """Of a cell that ran right and at equal memory, to the baseline."""
    s = cell["summary"].get(key) if cell["status"] == "ok" else None
    base = baseline(result, cell["workload"], cell["budget_pct"], key)
    return s[which] / base if s and base else None


SOURCES = ("staged", "filled", "pool", "swap", "file")


def faults(cell):
    """Median of the touches of pages that were out: memfit counts them itself, for the kernel they are its major faults."""
    good = [r for r in cell["rounds"] if r["status"] == "ok"]
    if cell["config"] == "memfit":
        counted = [r["stats"]["faults"] for r in good if r.get("stats")]
        return spread([sum(c.get(s) or 0 for s in SOURCES) for c in counted])
    return spread([r.get("major_faults") for r in good])


def describe_compared(result):
    labels = {}
    for c in result["cells"]:
        labels.setdefault(c["config"], c["label"])
    colours = {config: at for at, config in enumerate(labels)}
    ratios = result["ratios"]
    mean, compared = ratios["geomean_best_rival_over_memfit"], ratios["of"] - len(ratios["missing"])
    says = (f"The better of zram and zswap took {mean:.2f} times as long as memfit: the geometric mean over {compared} of "
            f"{ratios['of']} pairs of workload and budget." if mean else
            "No workload ran right and at equal memory under memfit and under zram or zswap.")
    o = result["options"]
    return {
        "title": "Whole programs at equal total memory", "says": says,
        "facts": [*facts(result), ["Rounds", str(o["rounds"])], ["Peaks within", f"{o['tolerance'] * 100:g} % of the budget"]],
        "sections": [overview(result, labels, colours), *(of_workload(result, w) for w in result["workloads"]
                                                         if any(c["workload"] == w for c in result["cells"])), *notes(result)],
    }


def overview(result, labels, colours):
    figures = []
    budgets = sorted({c["budget_pct"] for c in result["cells"]}, reverse=True)
    for key, what in (("wall_ns", "Wall time"), ("cpu_ns", "CPU time")):
        for budget in budgets:
            cells = {(c["workload"], c["config"]): c for c in result["cells"] if c["budget_pct"] == budget}
            names = [w for w in result["workloads"] if any(w == known for known, _ in cells)]
            values = {config: [quotient(result, cells[w, config], key) if (w, config) in cells else None for w in names]
                      for config in labels if config != "unlimited"}
            all_series = [series(labels[c], v, colours[c]) for c, v in values.items() if any(x is not None for x in v)]
            if all_series:
                says = "Medians, in terms of that without a limit. What did not run right, or at another peak, has no bar."
                figures.append(figure(f"{what} at {budget} % of the natural peak", says, "bars", "Workload",
                                      axis(f"{what} / without a limit", "ratio"), names, all_series, [(1, "no limit")]))
    pairs = (("memfit_over_zram", "memfit / zram"), ("memfit_over_zswap", "memfit / zswap"),
             ("memfit_over_swapfile", "memfit / swap file"), ("memfit_over_unlimited", "memfit / unlimited"),
             ("best_rival_over_memfit", "best of zram, zswap / memfit"),
             ("best_rival_over_memfit_cpu", "the same of CPU time"))
    rows = [[r["workload"], r["budget_pct"], *(r[key] for key, _ in pairs)] for r in result["ratios"]["rows"]]
    columns = ["Workload", ("Budget", "percent"), *((name, "ratio") for _, name in pairs)]
    return section("Overview", tables=[table("Ratios of median wall times", "", columns, rows)], figures=figures)


def of_workload(result, workload):
    cells = sorted((c for c in result["cells"] if c["workload"] == workload), key=lambda c: -c["budget_pct"])
    natural, peak = result["natural"][workload], number(result["natural"][workload]["peak_total"], MIB, 0)
    rounds = max((len(c["rounds"]) for c in cells), default=0)
    text = [f"{workload}: {peak} MiB and {number(natural['wall_ns'], 1e9)} s in one run without a limit."]
    ran = [c for c in cells if quotient(result, c, "wall_ns") is not None]
    names = [f"{c['label']}, {c['budget_pct']} %" for c in ran]
    figures = []
    if ran:
        values = {which: [quotient(result, c, "wall_ns", which) for c in ran] for which in ("median", "min", "max")}
        drawn = [series("median", values["median"], 0)]
        if rounds > 1:
            drawn += [series("least", values["min"], 1), series("greatest", values["max"], 4)]
        says = f"Over {rounds} rounds, in terms of the median without a limit." if rounds > 1 else "One round: no spread is known."
        figures.append(figure("Wall time and its spread", says, "points", "Configuration and budget",
                              axis("Wall time / without a limit", "ratio"), names, drawn, [(1, "no limit")]))
    moved = [(name, c) for name, c in zip(names, ran) if any(median(c, k) for k in ("disk_read_bytes", "disk_written_bytes"))]
    if moved:
        drawn = [series(word, [median(c, key) for _, c in moved], colour)
                 for word, key, colour in (("written", "disk_written_bytes", 4), ("read", "disk_read_bytes", 1))]
        figures.append(figure("Swapped to and from disk", "Medians; a configuration that swapped nothing to disk is not shown.",
                              "bars", "Configuration and budget", axis("Bytes", "bytes"), [n for n, _ in moved], drawn))
    budgets = sorted({c["budget_pct"] for c in cells}, reverse=True)
    tables = [cells_table(result, b, [c for c in cells if c["budget_pct"] == b]) for b in budgets]
    return section(result["titles"].get(workload, workload), text, tables, figures)


def median(cell, key):
    s = cell["summary"].get(key)
    return s["median"] if s else None


def cells_table(result, budget, cells):
    columns = ["Configuration", ("Wall", "nanoseconds"), ("Ratio", "ratio"), ("Least", "ratio"), ("Greatest", "ratio"),
               ("CPU", "nanoseconds"), ("Peak", "bytes"), ("Off the budget", "percent"), ("Faults", "count"),
               ("Disk read", "bytes"), ("Disk written", "bytes"), "Remark"]
    rows = []
    for c in cells:
        off = c.get("peak_error") if c["config"] != "unlimited" else None
        count = faults(c)
        rows.append([c["label"], median(c, "wall_ns"), *(quotient(result, c, "wall_ns", w) for w in ("median", "min", "max")),
                     median(c, "cpu_ns"), median(c, "peak_total"), None if off is None else off * 100,
                     count and count["median"], median(c, "disk_read_bytes"), median(c, "disk_written_bytes"), status_text(c)])
    size = next((f" = {number(c['budget_bytes'], MIB, 0)} MiB" for c in cells if c.get("budget_bytes")), "")
    return table(f"At {budget} %{size}", "Medians. Ratios are to the median without a limit. Faults are touches of pages that were out: "
                 "memfit's own count, the kernel's major faults.", columns, rows)


def describe_below(result):
    cells = result["below"]
    good = [c for c in cells if c["status"] == "ok"]
    figures = []
    for key, what in (("cpu", "CPU time"), ("wall", "Wall time")):
        if good:
            drawn = [series("mean", [c[key]["ratio"] for c in good], 0), series("lower bound", [c[key]["low95"] for c in good], 1),
                     series("upper bound", [c[key]["high95"] for c in good], 4)]
            figures.append(figure(what, "Geometric mean over interleaved pairs, with its 95 % bootstrap interval.", "points",
                                  "Command", axis(f"{what} with memfit / without", "ratio"), [c["command"] for c in good], drawn,
                                  [(1, "without memfit")]))
    columns = ["Command", "Pairs", ("CPU, plain", "nanoseconds"), ("CPU, memfit", "nanoseconds"),
               *((f"{what}{bound}", "ratio") for what in ("CPU ratio", "Wall ratio") for bound in ("", ", low", ", high")), "Remark"]
    rows = [[c["command"], c["pairs"], *(c[k] and c[k]["median"] for k in ("plain_cpu", "memfit_cpu")),
             *(c[k] and c[k][b] for k in ("cpu", "wall") for b in ("ratio", "low95", "high95")), c["why"]] for c in cells]
    sections = [section("Programs that fit", [f"CPU: {result['cpu_source']}."], [table("Pairs", "", columns, rows)], figures)]
    s = result.get("startup") or {}
    if s.get("plain") and s.get("memfit"):
        columns = ["", *((f"{what}, {which}", "nanoseconds") for what in ("A process", "The empty loop")
                         for which in ("median", "least", "greatest"))]
        rows = [[n, *(s[n][k][which] * 1e6 for k in ("per_process_ms", "empty_loop_ms") for which in ("median", "min", "max"))]
                for n in ("plain", "memfit")]
        text = f"{s['count']} times {s['command']} from a shell loop, {s['repeats']} repeats."
        sections.append(section("Start-up", [text], [table("Time", "", columns, rows)]))
    fits = sum(c["cpu"]["low95"] <= 1 for c in good)
    says = (f"For {fits} of {len(good)} commands no more CPU time is shown: the 95 % interval reaches down to that without memfit."
            if good else "No command ran.")
    return {"title": "What memfit costs a program that fits", "says": says, "facts": facts(result),
            "sections": [*sections, *notes(result)]}
