"""Tests of the bench that need neither root nor memfit: python3 -m unittest lab/bench/test_bench.py"""
import contextlib
import io
import json
import math
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import configs  # noqa: E402
import host  # noqa: E402
import journal  # noqa: E402
import page  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import mapped  # noqa: E402
import scale  # noqa: E402
import stats  # noqa: E402
import tuner  # noqa: E402
import workloads  # noqa: E402

MIB = 1 << 20


class Stats(unittest.TestCase):
    def test_spread(self):
        self.assertEqual(stats.spread([3, None, 1, 2]), {"median": 2, "min": 1, "max": 3})
        self.assertIsNone(stats.spread([None]))

    def test_geomean(self):
        self.assertAlmostEqual(stats.geomean([2, 8]), 4)
        self.assertIsNone(stats.geomean([None]))

    def test_interval_covers_the_truth(self):
        rng, covered = random.Random(5), 0
        for trial in range(100):
            plain = [rng.gauss(1, 0.05) for _ in range(30)]
            managed = [p * 1.03 * math.exp(rng.gauss(0, 0.02)) for p in plain]
            r = stats.paired_ratio(plain, managed, resamples=500, seed=trial)
            self.assertLess(r["low95"], r["ratio"])
            self.assertLess(r["ratio"], r["high95"])
            covered += r["low95"] <= 1.03 <= r["high95"]
        self.assertGreaterEqual(covered, 86)

    def test_interval_repeats_and_is_exact_without_noise(self):
        a = stats.paired_ratio([1, 2, 3], [1.1, 2.3, 3.1])
        self.assertEqual(a, stats.paired_ratio([1, 2, 3], [1.1, 2.3, 3.1]))
        b = stats.paired_ratio([1, 2], [2, 4])
        self.assertAlmostEqual(b["low95"], 2)
        self.assertAlmostEqual(b["high95"], 2)
        with self.assertRaises(ValueError):
            stats.paired_ratio([1], [1, 2])


class Tuner(unittest.TestCase):
    natural = 400 * MIB

    def fake(self, ratio, overhead=0, noise=0.0, seed=1, oom_below=0):
        rng = random.Random(seed)

        def go(limit):
            if limit < oom_below:
                return tuner.Trial(limit, limit, "oom")
            held = min(limit - overhead, self.natural)
            peak = held + ratio * (self.natural - held)
            return tuner.Trial(limit, int(peak * (1 + rng.uniform(-noise, noise))))
        return go

    def test_finds_the_budget(self):
        for ratio in (0, 0.2, 0.35, 0.6):
            for pct in (50, 75):
                for guess in (0, 0.35):
                    budget = self.natural * pct // 100
                    if ratio * self.natural > budget * 0.8:
                        continue
                    t = tuner.tune(self.fake(ratio, 3 * MIB, 0.004), budget, self.natural, guess)
                    self.assertEqual(t.status, "ok", (ratio, pct, guess, t))
                    self.assertLessEqual(abs(t.peak - budget), 0.02 * budget)
                    self.assertLessEqual(len(t.trials), 5)

    def test_infeasible(self):
        t = tuner.tune(self.fake(0.9), self.natural // 2, self.natural, 0.35)
        self.assertEqual(t.status, "infeasible")
        self.assertLessEqual(len(t.trials), 3)

    def test_oom_raises_the_limit(self):
        t = tuner.tune(self.fake(0.1, oom_below=190 * MIB), 230 * MIB, self.natural, 0.5)
        self.assertEqual(t.trials[0].status, "oom")
        self.assertEqual(t.status, "ok")

    def test_oom_above_the_budget_is_infeasible(self):
        t = tuner.tune(lambda x: tuner.Trial(x, 300 * MIB, "oom"), 200 * MIB, self.natural, 0.3)
        self.assertEqual((t.status, len(t.trials)), ("infeasible", 1))

    def test_timeout_and_failure_end_it(self):
        for status, want in (("timeout", "timeout"), ("failed", "failed")):
            t = tuner.tune(lambda x: tuner.Trial(x, 300 * MIB, status), 200 * MIB, self.natural)
            self.assertEqual((t.status, len(t.trials)), (want, 1))

    def test_step_function_is_reported_as_off(self):
        t = tuner.tune(lambda x: tuner.Trial(x, (150 if x < 200 * MIB else 300) * MIB), 220 * MIB, self.natural)
        self.assertEqual(t.status, "off")
        self.assertLessEqual(len(t.trials), 8)


def sample(wall, peak, n=3):
    return [{"status": "ok", "wall_ns": int((wall + i * 0.1) * 1e9), "cpu_ns": int(wall * 1e9), "user_ns": 5, "sys_ns": 5,
             "peak_total": peak, "disk_read_bytes": 0, "disk_written_bytes": MIB} for i in range(n)]


def result():
    cells = []
    for config, wall, peak in (("unlimited", 1, 400), ("memfit", 4, 199), ("zram", 8, 201), ("zswap", 6, 200)):
        cells.append({"workload": "randrw", "budget_pct": 50, "config": config, "label": config, "status": "ok",
                      "budget_bytes": 200 * MIB, "rounds": sample(wall, peak * MIB)})
    cells.append({"workload": "randrw", "budget_pct": 50, "config": "swapfile", "label": "swapfile", "status": "infeasible",
                  "budget_bytes": 200 * MIB, "rounds": [], "tuning": {"peak": 250 * MIB, "limit": 30 * MIB}})
    r = {"cells": [report.summarise(c) for c in cells], "workloads": ["randrw"], "titles": {}, "notes": ["x"],
         "natural": {"randrw": {"peak_total": 400 * MIB, "wall_ns": 10**9, "cpu_ns": 10**9}}, "complete": True,
         "schema": 1, "kind": "compare", "cgroup_version": 1, "zram_codec": "lz4",
         "zswap_codec": "lzo", "options": {"quick": False, "rounds": 3, "tolerance": 0.02, "run_timeout": 300},
         "facts": {"cpu": "c", "cpus": 2, "ram_bytes": 1 << 34, "kernel": "k", "virtualised": True, "memfit": None,
                   "loadavg_at_start": "0", "thp": "t", "swappiness": "60", "page_cluster": "3",
                   "disk": {"device": "d", "filesystem": "ext4", "rotational": False}}}
    r["ratios"] = report.ratios(r)
    return r


class Report(unittest.TestCase):
    def test_ratios(self):
        r = result()["ratios"]
        self.assertAlmostEqual(r["rows"][0]["memfit_over_zram"], 4.1 / 8.1)
        self.assertAlmostEqual(r["geomean_best_rival_over_memfit"], 6.1 / 4.1)
        self.assertEqual(r["missing"], [])

    def test_invalid_cells_are_left_out_and_named(self):
        r = result()
        for c in r["cells"]:
            if c["config"] in ("zram", "zswap"):
                c["status"] = "off"
        got = report.ratios(r)
        self.assertIsNone(got["geomean_best_rival_over_memfit"])
        self.assertEqual(got["missing"], ["randrw at 50 %"])

    def test_markdown(self):
        text = report.markdown(result())
        self.assertIn("| zram | 8.10 [8.00..8.20] | 8.00 |", text)
        self.assertIn("| +0.5 % |", text)
        self.assertIn("infeasible: peak 250 MiB at limit 30", text)
        self.assertIn("**1.49**", text)
        tables = [b for b in text.split("\n\n") if b.startswith("| ")]
        for t in tables:
            self.assertEqual(len({l.count("|") for l in t.splitlines()}), 1, t)

    def test_the_peak_rule(self):
        o = run.parse(["--out", "unused"])
        b = run.Bench(o)
        b.result = {"notes": []}
        for config, error, tuned, want in (("zram", 0.03, True, "off"), ("zram", -0.03, True, "off"), ("zram", 0.01, True, "ok"),
                                           ("memfit", -0.2, False, "ok"), ("memfit", 0.03, False, "off")):
            cell = {"workload": "w", "budget_pct": 50, "config": config, "label": config, "status": "ok", "peak_error": error}
            if tuned:
                cell["tuning"] = {}
            b.check_peak(cell)
            self.assertEqual(cell["status"], want, (config, error))


class Page(unittest.TestCase):
    """What the page of a result shows; a script that keeps the description stands for memfit."""

    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.memfit, self.page, self.result = (f"{self.dir}/{name}" for name in ("memfit", "page.html", "result.json"))
        journal.write(self.memfit, '#!/bin/sh\n[ "$2" = --help ] || cat >"$4"\n')
        os.chmod(self.memfit, 0o755)

    def save(self, r):
        with open(self.result, "w") as f:
            json.dump(r, f)

    def call(self, *args):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            code = run.main(["--memfit", self.memfit, "--report", self.page, *args])
        return code, err.getvalue()

    def test_of_an_existing_result(self):
        r = result()
        for c in r["cells"]:
            for n, one in enumerate(c["rounds"]):
                one.update({"stats": {"faults": {"zero": 90, "pool": 7 + n, "swap": 2}}} if c["config"] == "memfit" else {"major_faults": 50})
        self.save(r)
        self.assertEqual(self.call("--from", self.result), (0, ""))
        with open(self.page) as f:
            shown = json.load(f)
        overview, randrw, notes = shown["sections"]
        wall = overview["figures"][0]
        self.assertEqual((wall["title"], wall["places"]), ("Wall time at 50 % of the natural peak", ["randrw"]))
        ratios = {s["name"]: s["values"] for s in wall["series"]}
        self.assertEqual(list(ratios), ["memfit", "zram", "zswap"], "swapfile was infeasible")
        self.assertAlmostEqual(ratios["memfit"][0], 4.1 / 1.1)
        spread = {s["name"]: s["values"] for s in randrw["figures"][0]["series"]}
        at = randrw["figures"][0]["places"].index("memfit, 50 %")
        for name, want in (("median", 4.1), ("least", 4.0), ("greatest", 4.2)):
            self.assertAlmostEqual(spread[name][at], want / 1.1)
        columns = [c["name"] for c in randrw["tables"][0]["columns"]]
        rows = {row[0]: dict(zip(columns, row)) for row in randrw["tables"][0]["rows"]}
        self.assertEqual((rows["memfit"]["Faults"], rows["zram"]["Faults"]), (10, 50), "of pages that were out")
        self.assertEqual((rows["zram"]["Disk written"], rows["swapfile"]["Ratio"]), (MIB, None))
        self.assertIn("infeasible", rows["swapfile"]["Remark"])
        self.assertIn("1.49 times as long as memfit", shown["says"])
        self.assertEqual(notes["text"], ["x"])

    def test_without_unlimited_runs_the_natural_one_is_the_base(self):
        r = result()
        r["cells"] = [c for c in r["cells"] if c["config"] != "unlimited"]
        self.assertAlmostEqual(page.quotient(r, report.find(r, "randrw", 50, "memfit"), "wall_ns"), 4.1)
        r["cells"][0]["status"] = "off"
        self.assertIsNone(page.quotient(r, r["cells"][0], "wall_ns"), "not at equal memory")

    def test_below_budget(self):
        pair = {"ratio": 1.01, "low95": 0.99, "high95": 1.03}
        one = {"median": 2e9, "min": 1e9, "max": 3e9}
        good = {"command": "sort", "pairs": 30, "status": "ok", "why": "", "cpu": pair, "wall": pair, "plain_cpu": one, "memfit_cpu": one}
        bad = {"command": "x", "pairs": 0, "status": "failed", "why": "outputs differ", "cpu": None, "wall": None,
               "plain_cpu": None, "memfit_cpu": None}
        ms = {"per_process_ms": {"median": 2.5, "min": 2, "max": 3}, "empty_loop_ms": {"median": 9, "min": 9, "max": 9}}
        r = {**result(), "kind": "below", "cpu_source": "wait4", "below": [good, bad],
             "startup": {"count": 200, "command": "/bin/true", "repeats": 5, "plain": ms, "memfit": ms}}
        shown = page.describe(r)
        fits, startup, _ = shown["sections"]
        self.assertEqual([f["places"] for f in fits["figures"]], [["sort"], ["sort"]])
        self.assertEqual([s["values"] for s in fits["figures"][0]["series"]], [[1.01], [0.99], [1.03]])
        self.assertEqual(len(fits["tables"][0]["rows"]), 2)
        self.assertEqual(startup["tables"][0]["rows"][1][:2], ["memfit", 2.5e6])
        self.assertIn("For 1 of 1 commands", shown["says"])

    def test_scale(self):
        run_of = lambda cpu, wall, faults=None: {"cpu_ns": cpu, "wall_ns": wall, "stats": faults and {"faults": {"total": faults}}}
        self.assertEqual(scale.costs(run_of(1000, 500), run_of(9000, 4500, 200)),
                         {"faults": 200, "cpu_per_fault_ns": 40, "wall_per_fault_ns": 20})
        self.assertIsNone(scale.costs(run_of(1, 1), run_of(2, 2))["cpu_per_fault_ns"])
        point = lambda kind, n, *cpu: {"kind": kind, "value": n, "mib": 400, "why": "", "rounds": [
            {"faults": 1000, "cpu_per_fault_ns": c, "wall_per_fault_ns": c / 2} for c in cpu]}
        points = [point("threads", 1, 30e3, 40e3, 50e3), point("threads", 4, 60e3), point("processes", 1), point("processes", 2, 10e3)]
        points[2]["why"] = "outputs differ"
        self.assertEqual([ratio for *_, ratio in scale.summary(points)], [1, 1.5, None, None])
        text = report.scale_markdown({**result(), "cpu_source": "wait4", "scale": points})
        self.assertIn("| 4 threads | 400 | 1 | 60.0 [60.0..60.0] | 30.0 [30.0..30.0] | 1.50 |  |", text)
        self.assertIn("| 1 processes | 400 | – | – | – | – | outputs differ |", text)

    def test_files(self):
        got = lambda wall, read: {"wall_ns": wall * 1e9, "cpu_ns": wall * 5e8, "io_read": read << 20, "output": "x"}
        point = {"data": "text", "order": "scan", "count": 2, "mib": 300, "budget_bytes": 99 << 20, "status": "ok", "why": "",
                 "runs": {mapped.KERNEL: [got(1, 600), got(3, 610), got(2, 590)], mapped.MEMFIT: []}}
        text = report.files_markdown({**result(), "cpu_source": "wait4", "files": [point],
                                      "options": {**result()["options"], "read_iops": 3000}})
        self.assertIn("3000 read operations", text)
        self.assertIn("| text, scan | 300 | 99 | kernel | 2.0 [1.0..3.0] | 1.0 [0.5..1.5] | 600 [590..610] | – |  |", text)
        self.assertIn("| text, scan | 300 | 99 | memfit --files | – | – | – | – |  |", text)
        # Peaks, in percent of the budget, where the result has them.
        peak = lambda percent: {**got(1, 300), "charged_peak": (99 << 20) * percent // 100}
        for percents, status, shown in (((90, 101, 110), "ok", "101.0 [90.0..110.0] |  |"),
                                        ((103, 104, 90), "off", "103.0 [90.0..104.0] | memfit --files: median peak +3.0 % of the budget |")):
            point.update(status="ok", why="", runs={mapped.KERNEL: [peak(100)], mapped.MEMFIT: [peak(p) for p in percents]})
            mapped.check_peak(point, 0.02)
            self.assertEqual(point["status"], status)
            self.assertIn(shown, report.files_markdown({**result(), "cpu_source": "wait4", "files": [point]}))
        point.update(status="wrong", why="outputs differ")
        mapped.check_peak(point, 0.02)
        self.assertEqual(point["why"], "outputs differ")
        # Also of a run that is interrupted.
        bench = types.SimpleNamespace(cgroups=True, options=types.SimpleNamespace(quick=False, rounds=3, tolerance=0.02), result={},
                                      save=lambda: None)

        def one_run(bench, point, name, path, log):
            if bench.result["files"][-1]["runs"][mapped.MEMFIT]:
                raise KeyboardInterrupt
            point["runs"][name].append({"charged_peak": point["budget_bytes"] * 2})

        with mock.patch.multiple(mapped, one_run=one_run, make_file=mock.Mock(), make_readers=lambda *_: dict.fromkeys(mapped.READERS)):
            with mock.patch("os.geteuid", return_value=0), self.assertRaises(KeyboardInterrupt):
                mapped.run(bench, print)
        self.assertEqual({point["status"] for point in bench.result["files"]}, {"off"})
        for wrong in (["--files", "--scale"], ["--read-iops", "5"], ["--files", "--read-iops", "0"]):
            with self.assertRaises(SystemExit):
                run.parse(wrong)

    def test_readers_of_files_find_each_record_and_say_what_is_missing(self):
        bench = types.SimpleNamespace(out=self.dir)
        points = [{"data": kind, "status": "ok", "why": ""} for kind in ("sqlite", "numpy")]
        with open(f"{self.dir}/sqlite-1.new", "w") as f:
            f.write("left by a bench that was stopped")
        there = workloads.find_python
        self.addCleanup(setattr, workloads, "find_python", there)
        workloads.find_python = lambda modules: there(modules if modules == ["sqlite3"] else ["no_such_module"])
        files = mapped.make_readers(bench, 1, points)
        self.assertEqual([p["status"] for p in points], ["ok", "skipped"])
        self.assertIn("no_such_module", points[1]["why"])
        read = mapped.reader("read", "sqlite", files["sqlite"], 50)
        got = subprocess.run(read, capture_output=True, text=True, timeout=60)
        self.assertEqual((got.returncode, got.stdout.split()[:2]), (0, ["sqlite", "1024"]), got.stderr)
        db = sqlite3.connect(files["sqlite"])
        db.execute("update t set body = 'another'")
        db.commit()
        db.close()
        self.assertIn("MISMATCH", subprocess.run(read, capture_output=True, text=True, timeout=60).stderr)

    def test_what_is_wrong_is_named_and_leaves_no_page(self):
        self.save(result())
        cases = [(["--from", f"{self.dir}/none"], "none: it cannot be read: No such file")]
        for text, why in (("{", "it is no JSON"), ("[]", "no result of this bench"), ('{"schema": 1, "kind": "papers"}', "no result of this bench"),
                          ('{"schema": 1, "kind": "compare"}', "the result has no"),
                          (json.dumps({**result(), "cells": 5}), "not as the bench writes it")):
            path = f"{self.dir}/bad{len(cases)}"
            journal.write(path, text)
            cases.append((["--from", path], why))
        cases.append((["--from", self.result, "--memfit", "/nonexistent/memfit"], "no memfit binary at /nonexistent/memfit"))
        cases.append((["--from", self.result, "--report", f"{self.dir}/none/x.html"], "none is no directory"))
        cases.append((["--from", self.result, "--memfit", "/bin/false"], "makes no pages"))
        for args, why in cases:
            code, err = self.call(*args)
            self.assertEqual(code, 2, err)
            self.assertIn(why, err)
            self.assertFalse(os.path.exists(self.page), args)
        with contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(SystemExit):
            run.main(["--from", self.result])
        self.assertIn("--from is for --report", err.getvalue())


class Journal(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.path = f"{self.dir}/state.json"

    def test_undoes_in_reverse_and_removes_itself(self):
        for n in "ab":
            journal.write(f"{self.dir}/{n}", "old")
        os.mkdir(f"{self.dir}/group")
        open(f"{self.dir}/swap", "w").close()
        j = journal.Journal(self.path)
        j.add("write", path=f"{self.dir}/a", old="older")
        j.add("write", path=f"{self.dir}/a", old="old")
        j.add("cgroup", path=f"{self.dir}/group")
        j.add("swapfile", path=f"{self.dir}/swap")
        journal.write(f"{self.dir}/a", "new")
        again = journal.Journal.load(self.path)
        self.assertTrue(journal.owner_alive(again))
        self.assertEqual(again.undo_all(), [])
        self.assertEqual(journal.read(f"{self.dir}/a"), "older")
        self.assertEqual(sorted(os.listdir(self.dir)), ["a", "b"])

    def test_a_failure_is_kept_and_the_rest_undone(self):
        j = journal.Journal(self.path)
        j.add("write", path=f"{self.dir}/x", old="1")
        j.add("write", path=f"{self.dir}/none/there", old="1")
        self.assertEqual(len(j.undo_all()), 1)
        self.assertEqual(journal.read(f"{self.dir}/x"), "1")
        self.assertEqual(len(journal.Journal.load(self.path).entries), 1)

    def test_swap_is_turned_off_also_through_a_symlink(self):
        os.mkdir(f"{self.dir}/real")
        os.symlink("real", f"{self.dir}/link")
        open(f"{self.dir}/real/bench.swap", "w").close()
        off = []
        with mock.patch.multiple(journal, swaps=lambda: {f"{os.path.realpath(self.dir)}/real/bench.swap": 0},
                                 _libc=types.SimpleNamespace(swapoff=lambda path: off.append(os.fsdecode(path)))):
            journal.undo_swapfile(f"{self.dir}/link/bench.swap")
        self.assertEqual(off, [f"{os.path.realpath(self.dir)}/real/bench.swap"])
        self.assertEqual(os.listdir(f"{self.dir}/real"), [])
        b = run.Bench(run.parse(["--out", f"{self.dir}/link"]))
        self.assertEqual(b.swap_path, f"{os.path.realpath(self.dir)}/real/bench.swap")

    def test_a_controller_that_cannot_be_enabled_leaves_nothing_to_undo(self):
        journal.write(f"{self.dir}/cgroup.controllers", "memory cpu io")
        control = f"{self.dir}/cgroup.subtree_control"
        journal.write(control, "cpu")
        j = journal.Journal(self.path)
        with mock.patch.object(host, "write", side_effect=PermissionError), self.assertRaises(PermissionError):
            host.Cgroups._enable(self.dir, j)
        self.assertEqual(journal.Journal.load(self.path).entries, [])
        # One that is off is not turned off; what another bench left is undone, too.
        j.add("write", path=control, old="-memory")
        j.add("write", path=f"{self.dir}/none/cgroup.subtree_control", old="-memory")
        self.assertEqual(j.undo_all(), [])
        self.assertEqual(journal.read(control), "cpu")
        self.assertFalse(os.path.exists(self.path))
        j.add("write", path=control, old="-cpu")
        self.assertEqual(j.undo_all(), [])
        self.assertEqual(journal.read(control), "-cpu")

    def test_restore_refuses_a_live_owner_and_does_nothing_without_state(self):
        cmd = [sys.executable, f"{HERE}/restore", "--out", self.dir]
        self.assertEqual(subprocess.run(cmd, capture_output=True).returncode, 0)
        journal.Journal(self.path).add("write", path=f"{self.dir}/x", old="1")
        r = subprocess.run(cmd, capture_output=True, text=True)
        self.assertEqual(r.returncode, 1)
        self.assertIn("still runs", r.stderr)


class CgroupV2(unittest.TestCase):
    """The v2 files, in a folder that looks like a cgroup."""

    def test_counters(self):
        with tempfile.TemporaryDirectory() as d:
            for name, text in {"cpu.stat": "usage_usec 30\nuser_usec 10\nsystem_usec 20", "memory.peak": "4096",
                               "memory.events": "low 0\noom_kill 2", "memory.max": "max", "cgroup.procs": "",
                               "io.stat": "254:0 rbytes=10 wbytes=20 rios=1\n7:0 \n254:16 rbytes=1 wbytes=2"}.items():
                journal.write(f"{d}/{name}", text)
            owner = host.Cgroups(2, {"unified": d})
            g = host.Cgroup(owner, {"unified": d}, [])
            g.limit(4096)
            self.assertEqual(journal.read(f"{d}/memory.max"), "4096")
            self.assertEqual(g.counters(), {"cpu_ns": 30000, "user_ns": 10000, "sys_ns": 20000, "charged_peak": 4096,
                                            "oom_kills": 2, "io_read": 11, "io_written": 22})
            self.assertEqual((g.stat, g.stat_prefix), (f"{d}/memory.stat", ""))


class Disks(unittest.TestCase):
    """A folder that looks like /sys and has the disk of self.dir."""

    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        dev = os.stat(self.dir).st_dev
        self.link = f"{self.dir}/dev/block/{os.major(dev)}:{os.minor(dev)}"
        for name, text in {"devices/vda/dev": "254:0", "devices/vda/vda1/dev": "254:1", "devices/vda/vda1/partition": "1",
                           "block/vda/queue/rotational": "1", "block/vda/queue/scheduler": "none"}.items():
            os.makedirs(os.path.dirname(f"{self.dir}/{name}"), exist_ok=True)
            journal.write(f"{self.dir}/{name}", text)
        os.makedirs(os.path.dirname(self.link))
        sysfs = mock.patch.object(host, "SYS", self.dir)
        sysfs.start()
        self.addCleanup(sysfs.stop)

    def test_of_a_disk_and_of_a_partition(self):
        for device in ("vda", "vda/vda1"):
            os.symlink(f"../../devices/{device}", self.link)
            self.assertEqual(host.whole_disk(self.dir), ("vda", "254:0"))
            disk = host.facts(self.dir, None, None)["disk"]
            self.assertEqual((disk["device"], disk["rotational"], disk["scheduler"]), (os.path.basename(device), True, "none"))
            group = host.Cgroup(host.Cgroups(2, {}), {"unified": self.dir}, [])
            group.read_iops(self.dir, 3000)
            self.assertEqual(journal.read(f"{self.dir}/io.max"), "254:0 riops=3000")
            os.unlink(self.link)

    def test_reads_that_cannot_be_limited_are_refused(self):
        group = host.Cgroup(host.Cgroups(2, {}), {"unified": f"{self.dir}/none"}, [])
        with self.assertRaisesRegex(host.Refused, "not on one disk"):
            group.read_iops(self.dir, 3000)
        disk = host.facts(self.dir, None, None)["disk"]
        self.assertEqual((disk["device"], disk["rotational"], disk["scheduler"]), (None, None, None))
        os.symlink("../../devices/vda", self.link)
        with self.assertRaisesRegex(host.Refused, "limits no reads of vda"):
            group.read_iops(self.dir, 3000)
        group = host.Cgroup(host.Cgroups(1, {}), {"memory": self.dir}, [])
        with self.assertRaisesRegex(host.Refused, "controller blkio or io"):
            group.read_iops(self.dir, 3000)


class ZswapCodec(unittest.TestCase):
    def test_is_a_part_of_the_first_key(self):
        with tempfile.TemporaryDirectory() as d:
            for name in ("enabled", "compressor"):
                journal.write(f"{d}/{name}", "N")
            work, natural = types.SimpleNamespace(name="w", args=[]), {"peak_total": 100 * MIB, "output": "x"}
            found = []
            for codec in ("lzo", "zstd", "lzo"):
                b = run.Bench(run.parse(["--out", d, "--zswap-codec", codec, "--rounds", "1"]))
                b.result = {"notes": [], "facts": {"kernel": "k"}, "cgroup_version": 2, "natural": {"w": natural}, "cells": []}
                b.save = lambda: None
                b.run_once = lambda config, work, limit=None, budget=None: {
                    "status": "ok", "peak_total": 50 * MIB, "stderr": "", "output": "x"}
                with mock.patch.object(configs, "ZSWAP", d), contextlib.redirect_stderr(io.StringIO()):
                    b.cell_rounds(work, 50, [configs.Zswap(b)])
                cell = b.result["cells"][0]
                self.assertEqual((cell["label"], b.result["zswap_codec"]), (f"zswap ({codec})", codec))
                self.assertEqual(journal.read(f"{d}/enabled"), "N")
                found.append((cell["status"], cell["tuning"]["cached"]))
            self.assertEqual(found, [("ok", False), ("ok", False), ("ok", True)])


@unittest.skipUnless(shutil.which("cc"), "needs a C compiler")
class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.out = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.out)
        cls.bin = workloads.build(cls.out)

    def meter(self, *args):
        path = f"{self.out}/m.json"
        subprocess.run([f"{self.bin}/meter", "--out", path, *args], check=True, capture_output=True)
        with open(path) as f:
            return json.load(f)

    def test_meter_reports_exit_signal_and_timeout(self):
        self.assertEqual(self.meter("--", "sh", "-c", "exit 7")["code"], 7)
        self.assertEqual(self.meter("--", "sh", "-c", "kill -9 $$")["signal"], 9)
        r = self.meter("--timeout", "0.1", "--", "sleep", "9")
        self.assertTrue(r["timed_out"])
        self.assertLess(r["wall_ns"], 3e9)

    def test_meter_takes_the_greater_of_the_two_resident_sums(self):
        path = f"{self.out}/stat"
        journal.write(path, "total_rss 10\ntotal_shmem 5\ntotal_inactive_anon 20\ntotal_active_anon 1\ntotal_swapcached 9\n")
        zram = f"{self.out}/mm_stat"
        journal.write(zram, "1 2 100 0 100 0 0 0 0")
        r = self.meter("--stat", path, "--prefix", "total_", "--zram", zram, "--", "true")
        self.assertEqual((r["peak_resident"], r["peak_pool"], r["peak_total"]), (21, 100, 121))
        journal.write(path, "anon 30\nshmem 5\ninactive_anon 20\nactive_anon 1\n")
        self.assertEqual(self.meter("--stat", path, "--", "true")["peak_total"], 35)

    def test_workloads_repeat(self):
        for name in ("randrw", "sweep", "pygraph", "sqlmem"):
            small = {"randrw": ["4", "2000", "2"], "sweep": ["4", "3"], "pygraph": ["2", "900"], "sqlmem": ["2", "500"]}[name]
            cmd = workloads.prepare(name, self.out, True).cmd
            cmd = cmd[:len(cmd) - len(workloads.SIZES[name][1])] + small
            outs = {subprocess.run(cmd, check=True, capture_output=True, env=workloads.environment(self.out)).stdout
                    for _ in range(2)}
            self.assertEqual(len(outs), 1, name)
            self.assertTrue(outs.pop().startswith(b"randrw" if name == "randrw" else name.encode()))

    def test_swap_header_is_what_swapon_expects(self):
        path = f"{self.out}/swap"
        with open(path, "wb") as f:
            f.truncate(MIB)
        configs.swap_header(path, MIB)
        with open(path, "rb") as f:
            page = f.read(os.sysconf("SC_PAGE_SIZE"))
        self.assertEqual(page[-10:], b"SWAPSPACE2")
        self.assertEqual(int.from_bytes(page[1024:1028], sys.byteorder), 1)

    def test_missing_memfit_is_loud(self):
        o = run.parse(["--memfit", "/nonexistent/memfit", "--out", self.out])
        _, skipped = configs.available(["memfit", "unlimited"], o, False)
        self.assertIn("no memfit binary", skipped["memfit"])
        r = subprocess.run([sys.executable, f"{HERE}/run.py", "--below-budget", "--memfit", "/nonexistent/memfit",
                            "--out", self.out], capture_output=True, text=True)
        self.assertEqual(r.returncode, 2)
        self.assertIn("SKIPPED", r.stderr)
        with self.assertRaises(SystemExit):
            run.parse(["--scale", "--below-budget"])


if __name__ == "__main__":
    unittest.main()
