#!/usr/bin/env python3
"""Real programs with half of the memory that they take, compared with runs without a limit: makes docs/compat.md and .json.

A program that is not there is left out, with what to install. Runs each once; what a program prints must be the same.
"""
import argparse
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
sys.path[:0] = [HERE, os.path.join(ROOT, "lab", "bench")]
import configs  # noqa: E402
import host  # noqa: E402
import run as bench_run  # noqa: E402
import tuner  # noqa: E402
import whole  # noqa: E402
import workloads  # noqa: E402
from programs import PROGRAMS  # noqa: E402

MIB = 1 << 20
DOCUMENT = f"{ROOT}/docs/compat.md"
# What DOCUMENT's tables say of each program; results of several machines gather here.
PUBLISHED = f"{ROOT}/docs/compat.json"
# Less than this share of the peak evicted shows little.
EVICTED_LEAST = 25
# memfit takes no smaller budget.
BUDGET_LEAST = 16 * MIB
# Most runs of one program to find its limit under zram.
TRIALS_MAX = 5


def log(text):
    print(f"compat: {text}", file=sys.stderr, flush=True)


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--memfit", default=f"{ROOT}/target/release/memfit", help="memfit binary")
    p.add_argument("--out", default=f"{ROOT}/target/compat", help="folder of inputs and results, on a real disk")
    p.add_argument("--only", default="", metavar="A,B,..", help="these programs; the results of others stay")
    p.add_argument("--configs", default="memfit", metavar="A,B,..",
                   help="memfit, zram; zram alone adds to what is known of runs with memfit")
    p.add_argument("--percent", type=int, default=50, help="budget, %% of the program's peak")
    p.add_argument("--run-timeout", type=float, default=240, metavar="S", help="bound for one run")
    p.add_argument("--total-timeout", type=float, default=4 * 3600, metavar="S", help="bound for everything")
    p.add_argument("--list", action="store_true", help="list the programs, and what is missing for them")
    p.add_argument("--document", action="store_true", help="run nothing; make the tables from the .json again")
    p.add_argument("--no-document", action="store_true", help=f"leave {os.path.relpath(DOCUMENT, ROOT)} and .json as they are")
    o = p.parse_args(argv)
    # A comma with a space behind it belongs to a name.
    o.only = [x.strip() for x in re.split(r",(?! )", o.only) if x.strip()]
    o.configs = [x.strip() for x in o.configs.split(",") if x.strip()]
    unknown = [x for x in o.only if x not in [q.name for q in PROGRAMS]] + [c for c in o.configs if c not in ("memfit", "zram")]
    if unknown:
        p.error(f"unknown: {', '.join(unknown)}")
    o.memfit = os.path.abspath(o.memfit)
    # What the bench wants to know.
    o.memfit_arg, o.swappiness, o.cgroup_parent, o.page_cluster = [], None, None, {"zram": "0"}
    o.zram_codec, o.tolerance, o.retune = "lz4", 0.1, False
    return o


def python_for(program):
    try:
        return workloads.find_python(list(program.modules) or ["sys"])
    except workloads.Missing:
        return None


# The hash of no output, as the bench cuts it: nothing was compared.
NOTHING = hashlib.sha256().hexdigest()[:16]


def missing(program):
    def there(need):
        return glob.glob(need) if "/" in need else shutil.which(need)
    if all(map(there, program.needs)) and python_for(program):
        return None
    return program.packages


def in_folder(bench, program, line):
    """The command that runs a line in the program's folder."""
    folder = f"{bench.out}/{slug(program.name)}"
    home = os.environ.get("HOME", "/root")
    own = [f"P={HERE}/programs", f"PY={python_for(program)}", f"HOME={folder}", f"CARGO_HOME={os.environ.get('CARGO_HOME', home + '/.cargo')}",
           f"RUSTUP_HOME={os.environ.get('RUSTUP_HOME', home + '/.rustup')}"]
    return ["env", *own, "bash", "-e", "-o", "pipefail", "-c", 'cd "$0" && eval "$1"', folder, line]


def slug(name):
    return "".join(c if c.isalnum() else "-" for c in name.lower())


def prepare(bench, program):
    folder = f"{bench.out}/{slug(program.name)}"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    if program.setup:
        subprocess.run(in_folder(bench, program, program.setup), check=True, stdin=subprocess.DEVNULL, env=bench.env,
                       stdout=subprocess.DEVNULL, timeout=600)


def version(bench, program):
    r = subprocess.run(in_folder(bench, program, program.version), capture_output=True, text=True, stdin=subprocess.DEVNULL, env=bench.env, timeout=60)
    return (r.stdout.strip().splitlines() or ["?"])[0][:60]


def run_program(bench, program, old):
    """Runs a program in each of the configurations. `old`: what earlier runs of it gave."""
    o = bench.options
    prepare(bench, program)
    work = workloads.Workload(slug(program.name), (), in_folder(bench, program, program.line))
    row = {"name": program.name, "group": program.group, "version": version(bench, program), "runs": {}}
    known = bool(old) and old["version"] == row["version"] and "budget" in old
    if known and "memfit" not in o.configs and old["budget"] == budget_of(o, old["peak"]):
        row = old
    elif not run_unlimited(bench, work, row):
        return row
    elif known and abs(old["budget"] - row["budget"]) < row["budget"] // 20:
        row["runs"] = {name: run for name, run in old["runs"].items() if name not in o.configs}
    elif old:
        log(f"{program.name}: the earlier results are of another version or budget: they are forgotten")
    budget = row["budget"]
    log(f"{program.name}: peak {row['peak'] / MIB:.0f} MiB, {row['seconds']:.1f} s")
    for name in o.configs:
        config = configs.ALL[name](bench)
        r = run_tuned(bench, config, work, row["peak"], budget) if config.tuned else bench.run_once(config, work, budget=budget)
        stats = r.get("stats") or {}
        one = {"result": r["status"], "seconds": r.get("wall_ns", 0) / 1e9, "peak": r.get("peak_total"), "stderr": r.get("stderr", "")[-400:],
               "bound": o.run_timeout}
        if r["status"] == "ok":
            one["result"] = "same" if r["output"] == row["output"] else "differs"
            if name == "memfit" and one["result"] == "same" and over_budget(o, one["peak"], budget):
                one["result"] = "over budget"
        if name == "memfit":
            one["evicted"] = (stats.get("evictions") or {}).get("pages", 0) * 4096
            one["warnings"] = stats.get("warnings")
        one["left_behind"] = r.get("left_behind")
        row["runs"][name] = one
        log(f"  {name}: {one['result']}, {one['seconds']:.1f} s, peak {(one['peak'] or 0) / MIB:.0f} MiB"
            + (f", {one['evicted'] * 100 // max(1, row['peak'])} % evicted" if name == "memfit" else ""))
        if one["result"] != "same":
            log(f"  {one['stderr']}")
        if one["left_behind"]:
            log(f"  {one['left_behind']} processes were left behind")
            one["result"] = "left behind"
    return row


def run_unlimited(bench, work, row):
    """Finds what the program prints and takes without a limit. False if it fails."""
    plain = bench.run_once(configs.Unlimited(bench), work)
    row["peak"], row["seconds"], row["output"] = plain.get("peak_total", 0), plain.get("wall_ns", 0) / 1e9, plain["output"]
    if plain["status"] != "ok" or plain["output"] == NOTHING:
        status = plain["status"] if plain["status"] != "ok" else "no output"
        row["failed"] = f"{status} without a limit: {plain['stderr'][-200:]}"
        log(f"{row['name']}: {row['failed']}")
        return False
    row["budget"] = budget_of(bench.options, row["peak"])
    return True


def over_budget(options, peak, budget):
    """Whether memfit took more than zram may."""
    return bool(peak) and tuner.off(peak / budget - 1, options.tolerance, tuned=False)


def budget_of(options, peak):
    return max(peak * options.percent // 100, BUDGET_LEAST) // 4096 * 4096


def run_tuned(bench, config, work, natural, budget):
    """The run with a limit at which program and pool together peak at the budget. Each trial is a whole run."""
    bench.swap_size = (int(natural * 1.6) // MIB + 64) * MIB
    runs = {}

    def trial(limit):
        r = runs[limit] = bench.run_once(config, work, limit=limit)
        peak = r.get("peak_total") or 0
        log(f"  {config.name}: limit {limit / MIB:.1f} -> peak {peak / MIB:.1f} of {budget / MIB:.1f} MiB "
            f"({r['status']}, {r.get('wall_ns', 0) / 1e9:.1f} s)")
        return tuner.Trial(limit, peak, r["status"])

    tuned = tuner.tune(trial, budget, natural, config.pool_ratio, bench.options.tolerance, TRIALS_MAX)
    if tuned.status == "ok":
        return runs[tuned.limit]
    statuses = {run["status"] for run in runs.values()}
    if tuned.status == "infeasible":
        status = "oom" if runs[tuned.limit]["status"] == "oom" else "does not fit"
    elif "ok" in statuses:
        status = "no limit found"
    else:
        status = next(word for word in ("failed", "timeout", "oom") if word in statuses)
    return {"status": status, "stderr": ""}


WORDS = {"same": "right", "differs": "WRONG OUTPUT", "over budget": "over the budget", "oom": "killed", "timeout": "not in time",
         "failed": "fails", "left behind": "processes left behind"}


def number_of(version):
    """The number in what a program says of its version."""
    found = re.search(r"\d+(\.\d+)+", version) or re.search(r"\d+", version)
    return found[0] if found else version


def published(row):
    """What the document says of a program. Units: MiB, % of the peak; time divided by that without a limit."""
    if "failed" in row:
        return {"machine": row["machine"], "version": number_of(row["version"]), "result": "fails without memfit, too"}
    m, z = row["runs"].get("memfit", {}), row["runs"].get("zram")

    def slower(run):
        return f"{run['seconds'] / max(row['seconds'], 0.01):.1f}" if run.get("seconds") and run.get("result") == "same" else ""
    zram = "" if not z else slower(z) or WORDS.get(z["result"], z["result"])
    if z and z["result"] == "timeout":
        zram += f" ({z['bound']:.0f} s)"
    return {"machine": row["machine"], "version": number_of(row["version"]), "peak": round(row["peak"] / MIB), "budget": round(row["budget"] / MIB),
            "peak_percent": round(m["peak"] * 100 / row["budget"]) if m.get("peak") else "",
            "evicted": m.get("evicted", 0) * 100 // max(1, row["peak"]), "result": WORDS.get(m.get("result"), m.get("result", "not run")),
            "time": slower(m), "zram": zram}


COLUMNS = {"program": ("program", "---"), "machine": ("machine", "---:"), "version": ("version", "---"), "peak": ("peak, MiB", "---:"),
           "budget": ("budget, MiB", "---:"), "peak_percent": ("peak with memfit, % of the budget", "---:"),
           "evicted": ("evicted, % of the peak", "---:"), "result": ("result", "---"), "time": ("time, with / without memfit", "---:"),
           "zram": ("zram, the same total", "---")}


def machines_of(row):
    """The machine, and that of the run with zram if it is another one."""
    return [row["machine"]] + ([row["zram_machine"]] if row.get("zram_machine", row["machine"]) != row["machine"] else [])


def merged(old, row, ran):
    """What is published of a program after runs of it in the configurations `ran`. What was measured of the same version stays if it was
    not measured now, with its machine; on the same machine, of the same budget."""
    new = published(row)
    if not old or old["version"] != new["version"]:
        return new
    if "memfit" not in ran:
        if "failed" in row:
            return old
        return {**old, "zram": new["zram"], "zram_machine": new["machine"]} if "peak" in old else new
    if "failed" in row or new["zram"] or not old.get("zram"):
        return new
    if old["machine"] == new["machine"] and abs(old["budget"] - new["budget"]) > max(1, new["budget"] // 20):
        return new
    return {**new, "zram": old["zram"], "zram_machine": machines_of(old)[-1]}


def document(rows):
    """The lines of the document's tables. `rows`: a program's name to what is published of it."""
    known = [(p, rows[p.name]) for p in PROGRAMS if p.name in rows]
    machines = sorted({machine for _, row in known for machine in machines_of(row)})
    results = [row["result"] for _, row in known]
    paged = sum(row.get("evicted", 0) >= EVICTED_LEAST for _, row in known)
    counts = ", ".join(f"{results.count(word)} {word}" for word in dict.fromkeys(results))
    lines = ["", f"{len(known)} programs, {paged} of them with at least {EVICTED_LEAST} % of their peak evicted: {counts}.", "", "Machines:", ""]
    lines += [f"{number}. {machine}" for number, machine in enumerate(machines, 1)]
    # Earlier results have no such peak.
    columns = [c for c in COLUMNS if c != "peak_percent" or any(row.get(c) for _, row in known)]
    for group in dict.fromkeys(p.group for p, _ in known):
        lines += ["", f"### {group}", ""]
        lines += ["| " + " | ".join(COLUMNS[c][0] for c in columns) + " |", "|" + "|".join(COLUMNS[c][1] for c in columns) + "|"]
        for p, row in known:
            if p.group == group:
                shown = {**row, "program": p.name, "machine": ", ".join(str(machines.index(m) + 1) for m in machines_of(row))}
                lines.append("| " + " | ".join(str(shown.get(c, "")) for c in columns) + " |")
    return lines


def publish(measured, ran):
    """Replaces what is published of these rows, by their names, after runs in the configurations `ran`. What is known of other programs
    stays."""
    with open(PUBLISHED) as f:
        rows = json.load(f)
    rows.update({name: merged(rows.get(name), row, ran) for name, row in measured.items()})
    whole.write_json(PUBLISHED, {p.name: rows[p.name] for p in PROGRAMS if p.name in rows}, indent=1)
    whole.write_between(DOCUMENT, "compat", document(rows))


def main(argv):
    o = parse(argv)
    if o.document:
        publish({}, [])
        return 0
    chosen = [p for p in PROGRAMS if not o.only or p.name in o.only]
    absent = {p.name: missing(p) for p in chosen}
    if o.list:
        for p in chosen:
            print(f"{p.name:20} {'missing: ' + absent[p.name] if absent[p.name] else ''}".rstrip())
        return 0
    for name, packages in absent.items():
        if packages:
            log(f"{name} SKIPPED: install {packages}")
    _, cannot = configs.available(o.configs, o, os.geteuid() == 0)
    if cannot:
        log(f"refused: {'; '.join(f'{name}: {why}' for name, why in cannot.items())}")
        return 2
    bench = bench_run.Bench(o)
    path, code, ran = f"{bench.out}/result.json", 0, {}
    try:
        bench.open(needs_swap="zram" in o.configs)
        facts = host.facts(bench.out, o.memfit, workloads.find_python(["random"]))
        bench.result.update(facts=facts, cgroup_version=bench.cgroups.version if bench.cgroups else None)
        result = {"rows": {}}
        if os.path.exists(path):
            with open(path) as f:
                result = json.load(f)
        here = f"{facts.get('cpu')}, {os.cpu_count()} CPUs, Linux {facts['kernel']}."
        for p in chosen:
            if absent[p.name]:
                continue
            try:
                old = result["rows"].get(p.name, {})
                row = run_program(bench, p, old if old.get("machine") == here else {})
                shutil.rmtree(f"{bench.out}/{slug(p.name)}", ignore_errors=True)
            except (subprocess.SubprocessError, OSError) as e:
                log(f"{p.name}: its inputs cannot be made: {e}")
                code = 1
                continue
            ran[p.name] = result["rows"][p.name] = {**row, "machine": here}
            bad = "failed" in row or row["runs"].get("memfit", {}).get("result") not in (None, "same")
            code = 1 if bad else code
            whole.write_json(path, result, indent=1)
        if not o.no_document:
            publish(ran, o.configs)
    except host.Refused as e:
        log(f"refused: {e}")
        code = 2
    except bench_run.Stopped as e:
        log(f"stopped by {e}")
        code = 128 + getattr(signal, str(e)) if str(e).startswith("SIG") else 3
    finally:
        bench.close()
    return code if getattr(bench, "restored", True) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
