#!/usr/bin/env python3
"""Torture at scale: many seeds, from 5 to 90 % of the memory; makes docs/torture.md.

Each run is the torture program under memfit, built with assertions. A run has failed if its data are wrong, if a thread
makes no progress, or if it ends in another way than by itself. Results are added to those of earlier runs of the same
commit, so a total can be made of several pieces. Stops at the first failure, and keeps what memfit and the program said:
then no document is made before the sources change, or --new.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "lab", "bench"))
import whole  # noqa: E402

DOCUMENT = f"{ROOT}/docs/torture.md"
MIB = 1 << 20
# memfit takes no smaller budget.
BUDGET_LEAST = 16
PERCENT = (5, 10, 20, 35, 50, 70, 90)
# Of a thousand requests, so many are short or late, or have a wrong bit once. A device that loses data or takes no more
# would rightly end the run.
DEVICE = "seed={seed},short=100,stall=2,stall-ms=200,flip=2"
# Name; text of the document; processes; MiB each; options; attackers in the tree.
MODES = [
    ("thread", "one thread", 1, 256, "--threads 1", False),
    ("threads", "8 threads", 1, 256, "--threads 8", False),
    ("processes", "8 processes of 8 threads", 8, 64, "--threads 8", False),
    ("moves", "4 threads that mostly move, drop and unmap memory", 1, 192,
     "--threads 4 --mix mremap=40,dontneed=40,free=20,munmap=30,mmap=30", False),
    ("advises", "8 threads that mostly free, page out and map memory", 1, 256,
     "--threads 8 --mix free=1500,advise=2500,mmap=600,munmap=400", False),
    ("forks", "4 threads that fork", 1, 128, "--threads 4 --forks", False),
    ("children", "2 threads that mostly fork", 1, 48, "--threads 2 --forks --mix fork=2000", False),
    ("ends", "4 processes that are killed, exit, exec, and are stopped", 4, 64, "--threads 2 --stop-cont --exits", False),
    ("device", "4 threads, with a swap device that stumbles", 1, 192, "--threads 4", False),
    ("compares", "2 processes of 4 threads that mostly compare pages", 2, 128,
     "--threads 4 --mix read=100000,patch=10000,sweep=1000", False),
    ("attackers", "2 processes of 4 threads, beside two that attack the pager", 2, 96, "--threads 4", True),
]
# What attackers do, again and again: pose as a stub to get the userfaultfd of another process, and send descriptors.
ATTACK = "(while :; do ./thief {magic} {version}; ./knocks $MEMFIT_SOCKET 200 4; done) </dev/null >/dev/null 2>&1 & A=$!; "


def log(text):
    print(f"torture: {text}", file=sys.stderr, flush=True)


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--build", default=f"{ROOT}/target/debug", help="folder of memfit, libmemfit.so and memfit-torture")
    p.add_argument("--out", default=f"{ROOT}/target/torture", help="folder of results, on a real disk")
    p.add_argument("--only", default="", metavar="A,B,..", help=f"of {', '.join(mode[0] for mode in MODES)}")
    p.add_argument("--seconds", type=float, default=20, metavar="S", help="time of each run")
    p.add_argument("--rounds", type=int, default=1, help="seeds for each mode and budget")
    p.add_argument("--total-timeout", type=float, default=24 * 3600, metavar="S", help="begin no run after this time")
    p.add_argument("--new", action="store_true", help="forget earlier results")
    o = p.parse_args(argv)
    o.only = [name for name in o.only.split(",") if name]
    unknown = set(o.only) - {mode[0] for mode in MODES}
    if unknown:
        p.error(f"unknown: {', '.join(sorted(unknown))}")
    for name in ("memfit", "libmemfit.so", "memfit-torture"):
        if not os.path.exists(f"{o.build}/{name}"):
            p.error(f"no {o.build}/{name}: run cargo build --workspace")
    return o


def commit():
    changed = ["git", "-C", ROOT, "status", "--porcelain", "crates", "lab/torture/src"]
    if subprocess.run(changed, check=True, capture_output=True).stdout:
        sys.exit("torture: crates or lab/torture/src have changes without a commit: what was built is not known")
    # Documents do not change the program.
    words = ["git", "-C", ROOT, "rev-parse", "HEAD:crates", "HEAD:lab/torture/src"]
    return " ".join(subprocess.run(words, check=True, capture_output=True, text=True).stdout.split())


def build_attackers(folder):
    sources = f"{ROOT}/crates/cli/tests/workloads"
    for name in ("thief", "knocks"):
        subprocess.run(["gcc", "-O1", "-pthread", "-o", f"{folder}/{name}", f"{sources}/{name}.c"], check=True)
    with open(f"{ROOT}/crates/wire/src/lib.rs") as f:
        text = f.read()
    value = lambda name: int(re.search(rf"pub const {name}: u32 = (\w+);", text)[1], 0)
    return ATTACK.format(magic=value("MAGIC"), version=value("VERSION"))


def run(o, mode, percent, seed, attack):
    name, _, processes, mib, options, attacked = mode
    budget = max(BUDGET_LEAST * MIB, processes * mib * MIB * percent // 100)
    torture = (f"{o.build}/memfit-torture --seed {seed} --seconds {o.seconds} --size {mib}M --processes {processes} {options} "
               f"--verify-all-at-end --stall 120 --dir {o.out}/tmp")
    line = f"{attack}{torture}; S=$?; kill $A; exit $S" if attacked else f"exec {torture}"
    command = [f"{o.build}/memfit", "run", "-q", "-m", str(budget), "--stats", f"{o.out}/stats.json", "--", "sh", "-c", line]
    env = dict(os.environ, MEMFIT_SWAP_FAULTS=DEVICE.format(seed=seed)) if name == "device" else dict(os.environ)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               cwd=f"{o.out}/tmp", env=env, start_new_session=True)
    try:
        out, err = process.communicate(timeout=o.seconds * 3 + 300)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        err += "\nnot within its time"
    lines = [line for line in out.splitlines() if line.startswith("{")]
    result = json.loads(lines[-1]) if lines else {}
    if process.returncode != 0 or result.get("errors", 1):
        with open(f"{o.out}/failed.txt", "w") as f:
            f.write(f"{' '.join(command)}\nstatus {process.returncode}\n{out}\n{err}\n")
        return None, f"{name}, {percent} %, seed {seed}: status {process.returncode}; see {o.out}/failed.txt"
    with open(f"{o.out}/stats.json") as f:
        stats = json.load(f)
    faults = stats["faults"]
    refaults = sum(faults[source] for source in ("staged", "filled", "pool", "swap", "file"))
    return {"mode": name, "percent": percent, "seed": seed, "ops": result["total_ops"], "verified": result["verified_pages"],
            "refaults": refaults, "evicted": stats["evictions"]["pages"],
            "seconds": result["seconds"], "said": err.strip()}, None


def document(results):
    total = lambda rows, key: sum(row[key] for row in rows)
    lines = ["| program | runs | seeds | operations | pages verified | refaults | pages evicted |",
             "|---|---:|---|---:|---:|---:|---:|"]
    def row(title, rows):
        seeds = sorted(r["seed"] for r in rows)
        numbers = " | ".join(f"{total(rows, key):,}" for key in ("ops", "verified", "refaults", "evicted"))
        return f"| {title} | {len(rows)} | {seeds[0]} to {seeds[-1]} | {numbers} |"
    for name, title, *_ in MODES:
        rows = [r for r in results if r["mode"] == name]
        if rows:
            lines.append(row(title, rows))
    lines.append(row("**all**", results))
    words = total(results, "verified") * 512
    lines += ["", f"No run failed. The pages verified are {words / 1e9:.1f} billion words of 8 bytes."]
    whole.write_between(DOCUMENT, "torture", lines)


def main(argv):
    o = parse(argv)
    o.build, o.out = os.path.abspath(o.build), os.path.abspath(o.out)
    os.makedirs(f"{o.out}/tmp", exist_ok=True)
    attack = build_attackers(f"{o.out}/tmp") if shutil.which("gcc") else None
    path, results, of = f"{o.out}/result.json", [], commit()
    if os.path.exists(path) and not o.new:
        with open(path) as f:
            saved = json.load(f)
        if saved["commit"] != of:
            log("the earlier results are of other sources: they are forgotten")
        elif saved.get("failed"):
            log(f"a run of these sources has failed: {saved['failed']}")
            return 1
        else:
            results = saved["runs"]
    begin, seed = time.monotonic(), max((r["seed"] for r in results), default=0)
    failed = None
    for _ in range(o.rounds):
        for percent in PERCENT:
            for mode in MODES:
                late = time.monotonic() - begin > o.total_timeout
                if failed or late or o.only and mode[0] not in o.only or mode[5] and not attack:
                    continue
                seed += 1
                result, failed = run(o, mode, percent, seed, attack)
                if failed:
                    continue
                results.append(result)
                log(f"{mode[0]:10} {percent:3} % seed {seed:4}: {result['ops']:9,} operations, {result['verified']:11,} pages "
                    f"verified, {result['refaults']:9,} refaults {result['said'][:100]}")
                whole.write_json(path, {"commit": of, "runs": results})
    if failed:
        whole.write_json(path, {"commit": of, "runs": results, "failed": failed})
        log(failed)
        return 1
    if results:
        document(results)
        log(f"{len(results)} runs, {sum(r['verified'] for r in results):,} pages verified, "
            f"{sum(r['refaults'] for r in results):,} refaults, none lost; {DOCUMENT}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
