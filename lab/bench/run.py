#!/usr/bin/env python3
"""Whole programs at equal total memory: unlimited, memfit, kernel zram, zswap, swap file.

`lab/bench/run.py` compares; `lab/bench/run.py --below-budget [-- CMD...]` measures what
memfit costs a program that fits. See README.md. Whatever is changed on the
machine is put back at the end, on signals, and by `lab/bench/restore` after SIGKILL.
"""
import argparse
import atexit
import fcntl
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import below  # noqa: E402
import configs  # noqa: E402
import host  # noqa: E402
import journal as jn  # noqa: E402
import mapped  # noqa: E402
import page  # noqa: E402
import report  # noqa: E402
import scale  # noqa: E402
import tuner  # noqa: E402
import whole  # noqa: E402
import workloads  # noqa: E402
from host import Refused  # noqa: E402
from measure import measure  # noqa: E402

MIB = 1 << 20
ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
SCHEMA = 1
#: By kind of result the name of its files, and what writes it as Markdown.
KINDS = {"compare": ("result", report.markdown), "below": ("below", report.below_markdown),
         "scale": ("scale", report.scale_markdown), "files": ("files", report.files_markdown)}


class Stopped(BaseException):
    """A signal, or the time bound of the whole bench."""


def log(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def shout(text):
    log("*" * 12 + " " + text + " " + "*" * 12)


class Bench:
    def __init__(self, options):
        self.options, self.out = options, os.path.realpath(options.out)
        self.result, self.journal, self.cgroups = {}, None, None
        self.swap_path = f"{self.out}/bench.swap"
        self.swap_size = self.swap_device = None
        self.runs, self.deadline, self.closed = 0, time.monotonic() + options.total_timeout, False

    # -- machine ---------------------------------------------------------
    def open(self, needs_swap):
        os.makedirs(self.out, exist_ok=True)
        self.lock = open(f"{self.out}/lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Refused(f"another bench uses {self.out}") from None
        state = f"{self.out}/state.json"
        if os.path.exists(state):
            raise Refused(f"{state} is left over from a bench that was killed; call lab/bench/restore --out {self.options.out}")
        if needs_swap and jn.swaps():
            raise Refused(f"swap is already active ({', '.join(jn.swaps())}): the kernel's configurations would not be "
                          "measured alone. Turn it off first (swapoff -a), or ask whoever uses it")
        workloads.build(self.out)
        self.env = workloads.environment(self.out)
        self.before = host.snapshot()
        self.journal = jn.Journal(state)
        atexit.register(self.close)
        for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(s, self.on_signal)
        try:
            cgroups = host.Cgroups.detect(self.options.cgroup_parent)
            cgroups.create_base(self.journal)
            self.cgroups = cgroups
        except (Refused, OSError) as e:
            if needs_swap or isinstance(e, Refused):
                raise Refused(str(e)) from None
            shout(f"no cgroups ({e}): peaks and whole-tree CPU time are not measured from outside")
        self.swap_device = host.block_device(self.out)[0]
        if needs_swap:
            for p, v in (("enabled", None), ("compressor", None)):
                path = f"{configs.ZSWAP}/{p}"
                if os.path.exists(path):
                    self.journal.add("write", path=path, old=jn.read(path))
            path = "/proc/sys/vm/page-cluster"
            self.page_cluster = jn.read(path)
            self.journal.add("write", path=path, old=self.page_cluster)

    def on_signal(self, number, _frame):
        raise Stopped(signal.Signals(number).name)

    def close(self):
        if self.closed or not self.journal:
            return
        self.closed = True
        for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(s, signal.SIG_IGN)
        failures = self.journal.undo_all()
        for f in failures:
            shout(f"could not undo {f}; call lab/bench/restore")
        after = host.snapshot()
        changed = [k for k in after if after[k] != self.before[k]]
        if changed:
            shout(f"not as before: {', '.join(changed)}: {[self.before[k] for k in changed]} -> {[after[k] for k in changed]}")
        self.restored = not failures and not changed

    def swapfile(self):
        if not os.path.exists(self.swap_path):
            configs.make_swapfile(self.swap_path, self.swap_size, self.journal)
        return self.swap_path

    def next_run(self):
        self.runs += 1
        return self.runs

    def check_time(self):
        if time.monotonic() > self.deadline:
            raise Stopped(f"the bench's own time bound of {self.options.total_timeout:g} s")

    # -- results ---------------------------------------------------------
    def save(self):
        r = self.result
        if "cells" in r:
            for c in r["cells"]:
                report.summarise(c)
            r["ratios"] = report.ratios(r)
        name, markdown = KINDS[r["kind"]]
        whole.write_json(f"{self.out}/{name}.json", r, indent=1)
        text = markdown(r)
        with open(f"{self.out}/{name}.md", "w") as f:
            f.write(text)
        return text

    def write_page(self):
        """Exit status. The results are there in any case."""
        if not self.options.report:
            return 0
        try:
            page.make(self.options.memfit, page.describe, self.result, self.out, self.options.report)
        except Refused as e:
            log(f"no page: {e}")
            return 1
        return 0

    def note(self, text):
        shout(text)
        self.result["notes"].append(text)

    # -- comparison ------------------------------------------------------
    def run_once(self, config, work, limit=None, budget=None):
        """Bring the configuration up, run, and take it down whatever happens."""
        self.check_time()
        cmd, stats_path = work.cmd, f"{self.out}/run.stats"
        if config.name == "memfit":
            if os.path.exists(stats_path):
                os.unlink(stats_path)
            cmd = config.command(cmd, budget, stats_path)
        for attempt in range(3):
            self.wait_alone(config)
            r = self.up_and_measure(config, cmd, limit)
            if not config.tuned or not self.foreign_swap():
                break
            log(f"discarded: foreign swap {', '.join(self.foreign_swap())} became active during the run")
        else:
            raise Refused("others keep turning swap on during the runs")
        r["disk_read_bytes"] = r["disk_written_bytes"] = 0
        if config.name in ("zswap", "swapfile"):
            r["disk_read_bytes"], r["disk_written_bytes"] = r["swap_in_bytes"], r["swap_out_bytes"]
        if config.name == "memfit":
            self.add_stats(r, stats_path)
        if r.get("peak_total") == 0 and not self.cgroups:
            r["peak_total"] = r["maxrss_kib"] * 1024
        return r

    def foreign_swap(self):
        return sorted(jn.swaps())

    def wait_alone(self, config):
        """Between runs no swap is ours: any that is active is somebody else's. Wait for it to go."""
        told = False
        while config.tuned and self.foreign_swap():
            if not told:
                log(f"waiting: foreign swap {', '.join(self.foreign_swap())} is active")
                told = True
            time.sleep(1)
            self.check_time()

    def up_and_measure(self, config, cmd, limit):
        timeout = min(self.options.run_timeout, max(1.0, self.deadline - time.monotonic()))
        try:
            if config.tuned:
                jn.write("/proc/sys/vm/page-cluster", self.options.page_cluster.get(config.name, self.page_cluster))
            config.up()
            grab = (lambda: {"zram": config.counters()}) if config.name == "zram" else None
            return measure(self, cmd, limit, timeout, config.meter_args, grab)
        finally:
            config.down()

    @staticmethod
    def add_stats(r, path):
        try:
            with open(path) as f:
                s = json.load(f)
        except (OSError, ValueError) as e:
            r["stats_error"] = str(e)
            r["disk_read_bytes"] = r["disk_written_bytes"] = None
            return
        r["stats"] = {k: s.get(k) for k in ("peak", "faults", "evictions", "pool", "swap", "codecs", "warnings")}
        r["stats_peak_total"] = (s.get("peak") or {}).get("total_bytes")
        swap = s.get("swap") or {}
        r["disk_read_bytes"], r["disk_written_bytes"] = swap.get("read_bytes"), swap.get("write_bytes")

    def tune_cell(self, config, work, natural, budget):
        """The tuned limit, from the cache in the output folder if it is there."""
        o = self.options
        path = f"{self.out}/tune.json"
        try:
            with open(path) as f:
                cache = json.load(f)
        except (OSError, ValueError):
            cache = {}
        key = "|".join(map(str, (work.name, work.args, config.label(), budget // MIB, o.swappiness, o.page_cluster.get(config.name),
                                 self.result["facts"]["kernel"], self.result["cgroup_version"])))
        if key in cache and not o.retune:
            return key, {**cache[key], "cached": True}

        def trial(limit):
            r = self.run_once(config, work, limit=limit)
            log(f"  tuning {config.label()}: limit {limit / MIB:.1f} -> peak {r.get('peak_total', 0) / MIB:.1f} of "
                f"{budget / MIB:.1f} MiB ({r['status']}, {r.get('wall_ns', 0) / 1e9:.1f} s)")
            if r["status"] == "failed":
                log(f"  code {r.get('code')} signal {r.get('signal')}: {r['stderr']}")
            keep = ("wall_ns", "cpu_ns", "peak_resident", "peak_pool", "charged_peak", "oom_kills")
            return tuner.Trial(limit, r.get("peak_total"), r["status"], {k: r.get(k) for k in keep})

        t = tuner.tune(trial, budget, natural, config.pool_ratio, o.tolerance)
        entry = {"status": t.status, "limit": t.limit, "peak": t.peak, "trials": [vars(x) for x in t.trials]}
        if t.status in ("ok", "infeasible"):
            whole.write_json(path, {**cache, key: entry}, indent=1)
        return key, {**entry, "cached": False}

    def forget(self, key):
        path = f"{self.out}/tune.json"
        with open(path) as f:
            cache = json.load(f)
        cache.pop(key, None)
        whole.write_json(path, cache, indent=1)

    def compare(self, names):
        o, r = self.options, self.result
        works = []
        for n in o.workloads:
            try:
                works.append(workloads.prepare(n, self.out, o.quick))
            except workloads.Missing as e:
                self.note(f"workload {n} skipped: {e}")
        cfg = [configs.ALL[n](self) for n in names]
        plain = configs.Unlimited(self)
        r.update(workloads=[w.name for w in works], titles=workloads.TITLES, natural={}, cells=[])
        for w in works:
            n = self.run_once(plain, w)
            if n["status"] != "ok":
                raise Refused(f"{w.name} fails even without a limit: {n['status']} {n['stderr']}")
            log(f"{w.name}: natural peak {n['peak_total'] / MIB:.1f} MiB, {n['wall_ns'] / 1e9:.2f} s")
            r["natural"][w.name] = {k: n.get(k) for k in ("peak_total", "wall_ns", "cpu_ns", "output")}
            r["natural"][w.name]["args"] = w.args
        if not works:
            raise Refused("no workload can run")
        self.swap_size = (int(max(n["peak_total"] for n in r["natural"].values()) * 1.6) // MIB + 64) * MIB
        for w in works:
            for pct in o.budgets:
                self.cell_rounds(w, pct, cfg)

    def cell_rounds(self, work, pct, cfg):
        o, r = self.options, self.result
        natural = r["natural"][work.name]
        budget = natural["peak_total"] * pct // 100 // 4096 * 4096
        log(f"{work.name} at {pct} % = {budget / MIB:.1f} MiB")
        cells = []
        for c in cfg:
            cell = {"workload": work.name, "budget_pct": pct, "config": c.name, "label": c.name, "status": "ok",
                    "budget_bytes": budget, "rounds": []}
            if c.tuned:
                try:
                    c.prepare()
                    cell["tune_key"], cell["tuning"] = self.tune_cell(c, work, natural["peak_total"], budget)
                    cell["status"] = cell["tuning"]["status"]
                except (Refused, OSError) as e:
                    cell.update(status="failed", why=str(e))
                    self.note(f"{c.name} cannot be set up: {e}")
                if c.name == "zswap":
                    r["zswap_codec"] = c.codec
                elif c.name == "zram":
                    r["zram_codec"] = o.zram_codec
            cell["label"] = c.label()
            cells.append(cell)
            r["cells"].append(cell)
            self.save()
        for k in range(o.rounds):
            turn = list(zip(cfg, cells))
            for c, cell in turn[k % len(turn):] + turn[:k % len(turn)]:
                if cell["status"] not in ("ok", "wrong"):
                    continue
                limit = cell["tuning"]["limit"] if c.tuned else None
                run = self.run_once(c, work, limit=limit, budget=budget)
                cell["rounds"].append(run)
                self.judge(cell, run, natural["output"])
                log(f"  round {k + 1} {c.label()}: {run['status']}, wall {run.get('wall_ns', 0) / 1e9:.2f} s, "
                    f"CPU {(run.get('cpu_ns') or 0) / 1e9:.2f} s, peak {run.get('peak_total', 0) / MIB:.1f} MiB")
                self.save()
        for cell in cells:
            self.check_peak(report.summarise(cell))
        self.save()

    def judge(self, cell, run, expected):
        where = f"{cell['workload']} at {cell['budget_pct']} % under {cell['label']}"
        if run["status"] == "ok" and run["output"] != expected:
            run["status"] = cell["status"] = "wrong"
            self.note(f"WRONG OUTPUT: {where}")
        elif run["status"] != "ok":
            cell["status"] = run["status"]
            detail = f"code {run.get('code')} signal {run.get('signal')} {run['stderr'][-300:]}"
            cell["why"] = detail if run["status"] == "failed" else ""
            self.note(f"{run['status']}: {where} {cell['why']}")
        if run.get("left_behind"):
            self.note(f"{run['left_behind']} processes left behind: {where}")

    def check_peak(self, cell):
        """Equal memory or no comparison."""
        e, tolerance = cell.get("peak_error"), self.options.tolerance
        if cell["status"] != "ok" or e is None or cell["config"] == "unlimited":
            return
        if tuner.off(e, tolerance, tuned="tuning" in cell):
            cell["status"], cell["why"] = "off", f"median peak {e * 100:+.1f} % of the budget"
            self.note(f"{cell['workload']} at {cell['budget_pct']} % under {cell['label']}: {cell['why']}: not compared")
            if cell.get("tune_key"):
                self.forget(cell["tune_key"])


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    words = lambda s: [x for x in s.split(",") if x]
    p.add_argument("--memfit", default=f"{ROOT}/target/release/memfit", help="memfit binary")
    p.add_argument("--memfit-arg", action="append", default=[], help="further argument of `memfit run` (repeatable)")
    p.add_argument("--out", default=f"{ROOT}/target/bench", help="output folder, on a real disk: the swap file lies in it")
    p.add_argument("--quick", action="store_true", help="small sizes: tests the bench, says nothing about speed")
    p.add_argument("--workloads", type=words, default=workloads.DEFAULT, metavar="A,B,..", help=f"of {', '.join(workloads.SIZES)}")
    p.add_argument("--configs", type=words, default=list(configs.ALL), metavar="A,B,..", help="configurations")
    p.add_argument("--budgets", type=lambda s: [int(x) for x in words(s)], default=[75, 50], metavar="PCT,..", help="%% of the natural peak")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--tolerance", type=float, default=0.02, help="of the budget, for the peaks")
    p.add_argument("--retune", action="store_true", help="do not use cached limits")
    p.add_argument("--run-timeout", type=float, default=300, metavar="S", help="bound for one run")
    p.add_argument("--total-timeout", type=float, default=6 * 3600, metavar="S", help="bound for everything")
    p.add_argument("--zram-codec", default="lz4")
    p.add_argument("--zswap-codec", default="lz4,lzo-rle,lzo,zstd,deflate", help="first one that the kernel has")
    p.add_argument("--swappiness", type=int, help="of the runs' cgroups (v1); else inherited")
    p.add_argument("--page-cluster", default="zram=0,zswap=0", metavar="CONFIG=N,..",
                   help="vm.page-cluster under a configuration; unchanged where not named")
    p.add_argument("--cgroup-parent", help="put our cgroups under this one")
    p.add_argument("--below-budget", action="store_true", help="interleaved pairs plain / memfit with a large budget, and start-up cost")
    p.add_argument("--pairs", type=int, default=30)
    p.add_argument("--below-memory", help="-m of --below-budget (default 75 %% of RAM)")
    p.add_argument("--startup-count", type=int, default=200, help="processes of the start-up loop; 0 leaves it out")
    p.add_argument("--startup-repeats", type=int, default=5)
    p.add_argument("--scale", action="store_true", help="what a page fault costs by threads, by processes and by size")
    p.add_argument("--files", action="store_true", help="files that programs map: memfit run --files against the kernel's page cache")
    p.add_argument("--read-iops", type=int, metavar="N", help="with --files: most read operations a second of the disk")
    p.add_argument("--report", metavar="FILE.html", help="write the results as a page for a browser, too")
    p.add_argument("--from", dest="source", metavar="RESULT", help="with --report: of this result.json or below.json, without a run")
    argv, cmd = (argv[:argv.index("--")], argv[argv.index("--") + 1:]) if "--" in argv else (argv, [])
    o = p.parse_args(argv)
    o.command = cmd
    o.memfit = os.path.abspath(o.memfit)
    for n in o.workloads:
        if n not in workloads.SIZES:
            p.error(f"no workload {n}")
    for n in o.configs:
        if n not in configs.ALL:
            p.error(f"no configuration {n}")
    if o.source and not o.report:
        p.error("--from is for --report")
    if cmd and not o.below_budget:
        p.error("a command is for --below-budget")
    if (o.scale or o.files) and (o.below_budget or o.report or o.scale and o.files):
        p.error("--scale and --files are for themselves: without each other, --below-budget and --report")
    if o.read_iops is not None and (o.read_iops < 1 or not o.files):
        p.error("--read-iops is for --files, and starts at 1")
    o.kind = "below" if o.below_budget else "scale" if o.scale else "files" if o.files else "compare"
    if o.rounds < 1 or o.pairs < 1 or any(not 5 <= b <= 100 for b in o.budgets):
        p.error("--rounds and --pairs start at 1, --budgets lie between 5 and 100")
    try:
        o.page_cluster = {k: int(v) for k, v in (x.split("=") for x in words(o.page_cluster))}
    except ValueError:
        p.error("--page-cluster CONFIG=N,..")
    o.below_memory = o.below_memory or f"{host.meminfo('MemTotal') * 3 // 4 // MIB}M"
    return o


def prepare_result(bench, skipped):
    o = bench.options
    have = "memfit" not in skipped and os.path.isfile(o.memfit)
    keep = ("quick", "rounds", "budgets", "tolerance", "run_timeout", "swappiness", "page_cluster", "pairs",
            "memfit_arg", "below_memory", "zram_codec", "read_iops")
    bench.result.update(
        schema=SCHEMA, kind=o.kind, complete=False, notes=[],
        options={k: getattr(o, k) for k in keep}, skipped=skipped, zram_codec=None, zswap_codec=None,
        facts=host.facts(bench.out, o.memfit if have else None, workloads.find_python(["random"])),
        cgroup_version=bench.cgroups.version if bench.cgroups else None)
    for n, why in skipped.items():
        bench.note(f"{n} SKIPPED: {why}")
    if o.quick:
        bench.note("quick sizes: a test of the bench, not a measurement")
    load = float((bench.result["facts"]["loadavg_at_start"] or "0").split()[0])
    if load > 0.5:
        bench.note(f"the machine was busy at the start (load {load}): times are disturbed")


def below_items(bench):
    o = bench.options
    if o.command:
        return [(below.label_of(o.command), o.command)]
    items = []
    for n in o.workloads:
        try:
            w = workloads.prepare(n, bench.out, o.quick)
            items.append((f"{n} {' '.join(map(str, w.args))}", w.cmd))
        except workloads.Missing as e:
            bench.note(f"workload {n} skipped: {e}")
    return items


def execute(bench, names, skipped):
    o, r = bench.options, bench.result
    prepare_result(bench, skipped)
    if o.kind != "compare":
        r["cpu_source"] = "whole tree from a fresh cgroup" if bench.cgroups else "wait4 of the command only"
    if o.below_budget:
        below.run(bench, below_items(bench), log)
        bad = [c for c in r["below"] if c["status"] != "ok"] or r.get("startup", {}).get("status") == "failed"
    elif o.scale:
        scale.run(bench, log)
        bad = [point for point in r["scale"] if point["status"] != "ok"]
    elif o.files:
        mapped.run(bench, log)
        bad = [point for point in r["files"] if point["status"] != "ok"]
    else:
        bench.compare(names)
        others = [x.get("other_cpus", 0) for c in r["cells"] for x in c["rounds"]]
        busy = [x for x in others if x > 0.2]
        if busy:
            bench.note(f"other work used up to {max(busy):.1f} CPUs in {len(busy)} of {len(others)} runs: times are disturbed")
        bad = [c for c in r["cells"] if c["status"] in ("failed", "wrong") or c["config"] == "memfit" and c["status"] != "ok"]
    r["complete"] = True
    return 1 if bad else 0


def main(argv):
    o = parse(argv)
    try:
        if o.report:
            page.check(o.memfit, o.report)
        if o.source:
            page.make(o.memfit, page.describe, page.load(o.source, page.KINDS), o.source, o.report)
            return 0
    except Refused as e:
        log(f"refused: {e}")
        return 2
    root = os.geteuid() == 0
    names, skipped = configs.available(o.configs if o.kind == "compare" else ["memfit"], o, root)
    if o.kind != "compare" and "memfit" in skipped:
        shout(f"--{'below-budget' if o.below_budget else o.kind} SKIPPED: {skipped['memfit']}")
        return 2
    bench, code, text = Bench(o), 1, None
    try:
        bench.open(needs_swap=any(configs.ALL[n].tuned for n in names))
        code = execute(bench, names, skipped)
    except Refused as e:
        log(f"refused: {e}")
        code = 2
    except Stopped as e:
        shout(f"stopped by {e}")
        code = 128 + getattr(signal, str(e)) if str(e).startswith("SIG") else 3
    finally:
        bench.close()
    if any(bench.result.get(kind) for kind in ("cells", "below", "scale", "files")):
        text = bench.save()
        print(text)
        log(f"results: {os.path.relpath(bench.out)}/")
        code = bench.write_page() or code
    if not getattr(bench, "restored", True):
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
