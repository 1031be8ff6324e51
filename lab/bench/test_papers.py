"""Tests of lab/bench/papers that need neither root nor memfit: python3 -m unittest lab/bench/test_papers.py"""

import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from papers import cli, engine, factors, figure, han, record, render, shape, simulated, tuduce  # noqa: E402
from papers.programs import turns  # noqa: E402
from papers.shape import CANNOT, FAILS, HOLDS, MISSING, PUT_IN, UNDECIDED, VERDICTS, Statement  # noqa: E402

MIB = 1 << 20
FAKE = """#!/bin/sh
# A memfit that runs the command without a budget, and writes statistics.
if [ "$1" = schemes ]; then [ "$2" != none-such ]; exit; fi
if [ "$1" = stat ]; then echo '[]'; exit; fi
while [ "$1" != -- ]; do [ "$1" = --stats ] && stats=$2; shift; done
shift
echo '{"swap": {"read_bytes": 4096}, "codecs": {"lzo": {"pages": 1, "in_bytes": 4096, "out_bytes": 1024}}}' >"$stats"
exec "$@"
"""


def names_in(chain):
    for term in chain[::2]:
        yield from ((t for t in term) if isinstance(term, (list, tuple)) else (term,))


def fake_context(folder):
    path = f"{folder}/memfit"
    with open(path, "w") as f:
        f.write(FAKE)
    os.chmod(path, 0o755)
    return engine.Context(path, f"{folder}/work", quick=True)


class Chains(unittest.TestCase):
    numbers = {"a": 0.9, "b": 2, "c": (1.2, 2.1), "d": None}

    def holds(self, *chain):
        return shape.holds(chain, self.numbers)

    def test_comparisons(self):
        self.assertTrue(self.holds("a", "<", 1, "<", "b"))
        self.assertFalse(self.holds("a", "<", 0.9))
        self.assertTrue(self.holds("a", "<=", 0.9))
        self.assertTrue(self.holds("b", ">", 1, ">", "a"))
        self.assertFalse(self.holds("b", ">", "b"))

    def test_factors_and_lists(self):
        self.assertTrue(self.holds("2 * a", "<", "b"))
        self.assertFalse(self.holds("3 * a", "<", "b"))
        self.assertTrue(self.holds(["a", "b"], "<", 3))
        self.assertFalse(self.holds(["a", "b"], "<", 1))

    def test_a_range_must_hold_with_all_of_its_values(self):
        self.assertTrue(self.holds("c", "<", 2.2))
        self.assertFalse(self.holds("c", "<", "b"))
        self.assertFalse(self.holds(1.2, "<", "c"))
        self.assertTrue(self.holds(3, ">", "c", ">", 1))

    def test_what_is_missing_is_neither_good_nor_bad(self):
        self.assertIsNone(self.holds("d", "<", 1))
        self.assertIsNone(self.holds(["a", "d"], "<", 1))
        self.assertIs(self.holds(["b", "d"], "<", 1), False)
        self.assertIsNone(self.holds("none", "<", 1))


class Verdicts(unittest.TestCase):
    """Of rounds in which a number is below 1, or not."""

    def judge(self, below, above, explained="", **more):
        rounds = [{"a": 0.5, "once": None}] * below + [{"a": 1.5, "once": None}] * above
        rounds[0] = {**rounds[0], "once": 3}
        return shape.judge(Statement("n", "t", "s", ("a", "<", 1), **more), rounds, {"n": explained})

    def test_rounds_that_agree_decide(self):
        for below, above, verdict in (
            (7, 0, HOLDS),
            (0, 7, FAILS),
            (6, 1, UNDECIDED),
            (1, 6, UNDECIDED),
            (5, 0, UNDECIDED),
            (1, 0, UNDECIDED),
            (8, 1, HOLDS),
            (1, 8, FAILS),
            (7, 2, UNDECIDED),
        ):
            self.assertEqual(self.judge(below, above)["verdict"], verdict, (below, above))

    def test_each_comparison_is_decided(self):
        numbers = lambda a, b: {"a": a, "b": b}
        decided = lambda rounds: shape.judged_chain((["a", "b"], "<", 1), rounds)
        self.assertEqual(decided([numbers(0, 0)] * 7), HOLDS)
        self.assertEqual(decided([numbers(0, 2)] * 7), FAILS)
        # Each round denies one of the two, and neither is denied by all.
        self.assertEqual(decided([numbers(0, 2), numbers(2, 0)] * 4), UNDECIDED)
        # A round in which one side is missing counts for neither.
        self.assertEqual(decided([numbers(0, 0)] * 6 + [numbers(None, 2)]), UNDECIDED)
        self.assertEqual(decided([numbers(0, 0)] * 6 + [numbers(None, 0)]), HOLDS)

    def test_how_many_may_dissent(self):
        found = [shape.dissenters(n) for n in range(0, 18)]
        self.assertEqual(found, [-1] * 6 + [0] * 3 + [1] * 3 + [2] * 3 + [3] * 2 + [4])

    def test_what_is_put_in_does_not_hold_by_itself(self):
        j = self.judge(7, 0, "more", put_in="two fit into a frame")
        self.assertEqual((j["verdict"], j["explained"]), (PUT_IN, "two fit into a frame more"))
        self.assertEqual(self.judge(0, 7, put_in="two fit into a frame")["verdict"], FAILS)

    def test_what_cannot_be_judged(self):
        self.assertEqual(self.judge(7, 0, cannot="no such disk")["verdict"], CANNOT)
        self.assertEqual(self.judge(7, 0, missing="no killer")["verdict"], MISSING)
        none = shape.judge(Statement("n", "t", "s", ("b", "<", 1)), [{"a": 1}], {})
        self.assertEqual((none["verdict"], none["explained"]), (CANNOT, "a number is missing"))

    def test_numbers_are_told_with_their_extent(self):
        self.assertEqual(self.judge(3, 4)["numbers"], "a = 1.5 [0.5..1.5] < 1")
        self.assertEqual(self.judge(3, 4)["agree"], "3 of 7")
        text = shape.chain_text(("a", "<", 1, "<", ["b", "2 * c"]), [Chains.numbers])
        self.assertEqual(text, "a = 0.9 < 1 < b = 2, 2 * c = 2.4 to 4.2")

    def test_explanations_take_their_numbers_from_the_result(self):
        self.assertEqual(self.judge(3, 4, "{a}, {a:0}, {once:1}, {none}")["explained"], "1.50, 2, 3.0, ?")


class SignsAndOrder(unittest.TestCase):
    def test_signs(self):
        self.assertEqual(shape.signs([(0.9, 0.5), ((1.2, 2.1), 3), (2, 0.9)], 1), (2, 3))

    def test_order_leaves_out_what_is_equal_in_print(self):
        self.assertEqual(shape.order([(1, 10), (2, 20), (3, 15)]), (2, 3))
        self.assertEqual(shape.order([((1, 3), 10), ((2, 4), 20), (5, 5)]), (0, 2))
        self.assertEqual(shape.order([(1, 1), (1, 2)]), (0, 0))
        self.assertEqual(shape.order([(1, 100.0), (2, 100.5)]), (0, 1), "half a percent apart is no order")


class Factors(unittest.TestCase):
    def test_table_8_follows_from_table_7(self):
        lines, good = factors.check()
        self.assertTrue(good, "\n".join(lines))

    def test_a_wrong_number_is_noticed(self):
        was = factors.TABLE8["1.7"]
        try:
            factors.TABLE8["1.7"] = (was[0] + 0.05, *was[1:])
            self.assertFalse(factors.check()[1])
        finally:
            factors.TABLE8["1.7"] = was

    def test_shares_by_hand(self):
        only_block = {levels: 10 + 3 * levels[1] for levels in factors.GRID}
        self.assertEqual([round(s, 6) for s in factors.shares(only_block)], [0, 100, 0, 0, 0, 0, 0])
        both = {levels: 5 + 2 * levels[0] + levels[0] * levels[2] for levels in factors.GRID}
        self.assertEqual([round(s, 6) for s in factors.shares(both)], [80, 0, 0, 0, 20, 0, 0])
        self.assertEqual(factors.shares({levels: 1 for levels in factors.GRID}), [0] * 7)

    def test_table_7_is_read_by_levels(self):
        t = factors.printed("1.7")
        self.assertEqual((t[-1, -1, -1], t[-1, 1, -1], t[-1, -1, 1], t[1, 1, 1]), (2229.04, 1796.98, 2803.01, 660.04))

    def test_the_grid_sets_what_its_names_say(self):
        self.assertEqual(len({factors.label(levels) for levels in factors.GRID}), 8)
        self.assertEqual(factors.label((1, -1, 1)), "grid-14-64-1024")
        self.assertEqual(
            factors.overrides((1, -1, 1)), (*factors.LOOKS, "pool.entries_per_frame=14", "pool.block_bytes=64", "pool.zone_kib=1024")
        )


class WithContext(unittest.TestCase):
    """With a folder of its own, and a memfit that only looks like one."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.ctx = fake_context(cls.folder)


class Papers(WithContext):
    """Every module by the same rules."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ctx.natural = lambda command: 25 * MIB
        with open(f"{cls.folder}/apps", "w"):
            pass

    def cells(self, module, quick=False):
        self.ctx.quick = quick
        program = self.ctx.program
        self.ctx.program = lambda name, *args: ("true",) if args and args[0] == "media" else program(name, *args)
        try:
            return module.cells(self.ctx)
        finally:
            self.ctx.program = program

    def test_each_has_runs_to_record_under_names_of_their_own(self):
        for m in cli.PAPERS:
            places = [p for c in self.cells(m) for p in record.places(m.NAME, c)]
            self.assertEqual(len(places), len(set(places)), m.NAME)
            self.assertGreater(len({os.path.basename(p) for p in places}), 1, m.NAME)
            self.assertTrue(all(re.fullmatch(rf"{m.NAME}/[^/ ]+/[^/ ]+\.memfit", p) for p in places), places)
            self.assertFalse([p for p in places if p.endswith("/memfit.memfit")], "no simulation stands beside it")

    def test_statements_hold_on_the_published_numbers(self):
        for m in cli.PAPERS:
            for s in (s for s in m.STATEMENTS if s.chain):
                said = f"{m.NAME}: {s.name}: {shape.chain_text(s.chain, [m.PUBLISHED])}"
                self.assertIsNot(shape.holds(s.chain, m.PUBLISHED), False, said)

    def test_enough_of_them_are_published(self):
        for m in cli.PAPERS:
            held = sum(bool(s.chain and shape.holds(s.chain, m.PUBLISHED)) for s in m.STATEMENTS)
            self.assertGreaterEqual(held, 3, m.NAME)

    def test_every_name_is_derived(self):
        for m in cli.PAPERS:
            live = set(m.derive(engine.Cells()))
            # Tables have numbers that only a simulation gives, too.
            simulated = getattr(m, "NOT_LIVE", set())
            self.assertEqual(live & simulated, set(), m.NAME)
            derived = live | simulated
            for s in m.STATEMENTS:
                for name in names_in(s.chain):
                    if isinstance(name, str):
                        self.assertIn(name.rpartition(" * ")[2], live, f"{m.NAME}: {s.name}")
            for t in m.TABLES:
                for c in t.columns:
                    for row in t.rows:
                        self.assertIn(c.key.format(row), derived, f"{m.NAME}: {t.title}")
            self.assertLessEqual(set(m.PUBLISHED), derived, m.NAME)

    def test_every_derived_number_has_its_runs(self):
        for m in cli.PAPERS:
            keys = [c.key for c in self.cells(m)]
            self.assertEqual(len(keys), len(set(keys)), m.NAME)
            full = engine.Cells({key: Filled(status="ok", workload=key[0], config=key[1]) for key in keys})
            self.assertEqual({n for n, v in m.derive(full).items() if v is None}, set(), m.NAME)

    def test_what_a_statement_needs_runs_in_each_round(self):
        for m in cli.PAPERS:
            keys = [c.key for c in self.cells(m) if not c.once]
            of_a_round = m.derive(engine.Cells({key: Filled(status="ok", workload=key[0], config=key[1]) for key in keys}))
            for s in (s for s in m.STATEMENTS if s.chain):
                self.assertIsNotNone(shape.holds(s.chain, of_a_round), f"{m.NAME}: {s.name}")

    def test_explanations_name_numbers_that_there_are(self):
        for m in cli.PAPERS:
            numbers = {name: 1.0 for name in m.derive(engine.Cells())}
            for name, text in m.EXPLAINED.items():
                self.assertNotIn("?", shape.filled(text, [numbers]), f"{m.NAME}: {name}")
                self.assertNotIn("{", shape.filled(text, [numbers]), f"{m.NAME}: {name}")

    def test_quick_is_a_part(self):
        for m in cli.PAPERS:
            self.assertLessEqual({c.key for c in self.cells(m, quick=True)}, {c.key for c in self.cells(m)}, m.NAME)

    def test_statements_have_names_of_their_own_and_explanations_belong_to_one(self):
        for m in cli.PAPERS:
            names = [s.name for s in m.STATEMENTS]
            self.assertEqual(len(names), len(set(names)))
            self.assertLessEqual(set(m.EXPLAINED), set(names), m.NAME)
            for s in m.STATEMENTS:
                self.assertEqual(bool(s.chain), not (s.cannot or s.missing), s.name)

    def test_averages_of_the_printed_entry_times(self):
        for config in ("zram", "zswap", "hybrid"):
            mean = sum(han.PUBLISHED[f"entry({config} {app})"] for app in han.APPS) / len(han.APPS)
            self.assertEqual(int(mean), han.PUBLISHED[f"entry({config} average)"])

    def test_printed_times_of_smv_and_qsim_are_in_order(self):
        speedups = [tuduce.PUBLISHED[f"speedup(qsim {x})"] for x in ("1.3 1", "1.7 1", "1.9 1")]
        self.assertEqual(speedups, sorted(speedups))


class Recorded(WithContext):
    def test_a_recording_is_kept_if_the_run_was_good(self):
        cell = lambda text: engine.Cell("w", "c", ("sh", "-c", text), MIB, "memfit")
        path = f"{self.folder}/out/w/c.memfit"
        made = f"touch {path}.new; echo measured 1"
        self.assertIsNone(record.record(self.ctx, cell(made), path))
        self.assertEqual(os.listdir(os.path.dirname(path)), ["c.memfit"])
        os.unlink(path)
        self.assertIn("failed", record.record(self.ctx, cell(made + "; exit 1"), path))
        self.assertEqual((os.listdir(os.path.dirname(path)), self.ctx.options), ([], ()))


class Filled(dict):
    """A summary in which every number is there."""

    def get(self, key, default=None):
        if key == "entries":
            return {name: 0.1 for name in (*han.APPS, *han.PROGRAMS)}
        return super().get(key, {"median": 2.0, "min": 1.0, "max": 3.0} if key in ("seconds", "entry", "wall") else 2.0)


class Rounds(WithContext):
    """A paper of one program, run by something that looks like memfit."""

    class Paper:
        NAME, TITLE, SOURCE, MACHINE = "p", "P", "S", engine.Machine()
        PUBLISHED, TABLES, EXPLAINED = {}, (), {}
        STATEMENTS = (Statement("below", "t", "s", ("time", "<", 1)),)

        @staticmethod
        def cells(ctx):
            cell = lambda config, **more: engine.Cell("w", config, ("sh", "-c", "echo measured 0.5"), MIB, "memfit", **more)
            return [cell("a"), cell("b", once=True)]

        @staticmethod
        def derive(cells):
            return {"time": cells.value("w", "a"), "once": cells.value("w", "b")}

    def test_each_round_has_its_numbers(self):
        with contextlib.redirect_stderr(io.StringIO()):
            part = cli.run_paper(self.ctx, self.Paper, 6, time.monotonic() + 60)
        self.assertEqual(part["numbers"], [{"time": 0.5, "once": 0.5}] + [{"time": 0.5, "once": None}] * 5)
        self.assertEqual([(s["verdict"], s["agree"]) for s in part["statements"]], [(HOLDS, "6 of 6")])
        self.assertEqual([c["rounds"] for c in part["cells"]], [6, 1])

    def test_rounds_are_added_to_those_of_the_same_machine(self):
        with contextlib.redirect_stderr(io.StringIO()):
            four, two = (cli.run_paper(self.ctx, self.Paper, n, time.monotonic() + 60) for n in (4, 2))
        here, there = ({key: name for key in cli.SAME} for name in ("here", "there"))
        self.assertEqual([s["verdict"] for s in four["statements"]], [UNDECIDED])
        both = cli.added(self.Paper, {**four, "facts": here}, {**two, "facts": here})
        self.assertEqual([(s["verdict"], s["agree"]) for s in both["statements"]], [(HOLDS, "6 of 6")])
        self.assertEqual((both["rounds"], [c["rounds"] for c in both["cells"]]), (6, [4, 1]))
        self.assertEqual((four["series"], both["series"]), (1, 2))
        old = {key: value for key, value in four.items() if key != "series"}
        for unknown in (old, {**old, "series": None}):
            self.assertIsNone(cli.added(self.Paper, {**unknown, "facts": here}, {**two, "facts": here})["series"])
        self.assertIsNone(cli.added(self.Paper, {**four, "facts": here}, {**two, "facts": there}))
        failed = {**two, "facts": here, "cells": [{**two["cells"][0], "status": "wrong", "why": "page 3"}, two["cells"][1]]}
        both = cli.added(self.Paper, {**four, "facts": here}, failed)
        self.assertEqual([(c["status"], c["why"], c["rounds"]) for c in both["cells"]], [("wrong", "page 3", 4), ("ok", "", 1)])

    def test_one_failure_is_forgiven_and_two_are_not(self):
        cell = lambda config, line: engine.Cell("w", config, ("sh", "-c", line), MIB, "memfit")
        once = cell("once", f"test -e {self.folder}/ran && echo measured 1; touch {self.folder}/ran")
        never = cell("never", "exit 1")
        with contextlib.redirect_stderr(io.StringIO()):
            runs, complete = cli.run_cells(self.ctx, [once, never], 4, time.monotonic() + 60)
        self.assertTrue(complete)
        self.assertEqual([r["status"] for r in runs[once]], ["failed", "ok", "ok", "ok"])
        self.assertEqual([r["status"] for r in runs[never]], ["failed", "failed"])


class Rendering(unittest.TestCase):
    def part(self, module):
        rounds = [{n: 1.5 for n in module.derive(engine.Cells())}] * 7
        cell = engine.Cell("fft", "swap", ("true",), 30 * MIB, "swap")
        bad = {**run_of(), "status": "wrong", "stderr": "MISMATCH page | 3"}
        return {
            "quick": False,
            "complete": True,
            "absent": ["cervera99"],
            "rounds": 7,
            "restrained": "1 CPU",
            "seconds": 61.0,
            "facts": self.facts,
            "numbers": rounds,
            "statements": [shape.judge(s, rounds, {}) for s in module.STATEMENTS],
            "cells": [
                engine.summarise(cell, [run_of(), run_of()]),
                engine.summarise(cell, [bad]),
                engine.summarise(cell, []),
            ],
        }

    def beside(self, module):
        said = {"what": "it | is", "source": "Fig. 0", "published": "1", "verdict": FAILS, "here": "2", "why": "", "recorded": "–"}
        part = {"setting": "S", "differs": ["D " * 90], "statements": [said], "numbers": {"speedup(fft)": [1.0, 2.0]}}
        return simulated.Simulated({**part, "recorded": {"notes": ["N"], "numbers": {}}}, 2, module.own)

    facts = {
        "cpu": "C",
        "cpus": 2,
        "virtualised": True,
        "kernel": "6",
        "disk": {"device": "vda", "filesystem": "ext4"},
        "memfit": "memfit 1",
        "loadavg_at_start": "0.1 0.2 0.3",
    }

    def test_tables_are_whole(self):
        for m in cli.PAPERS:
            text = render.paper_page(m, self.part(m), self.beside(m), True)
            width = 0
            for line in text.splitlines():
                columns = line.replace("\\|", "").count("|") if line.startswith("|") else 0
                if columns and width:
                    self.assertEqual(columns, width, f"{m.NAME}: {line}")
                width = columns
            self.assertNotIn("None", text)
            for s in m.STATEMENTS:
                self.assertIn(s.text, text)
            self.assertIn("| it \\| is | Fig. 0 |", text)
            self.assertIn(f"({m.NAME}.svg)", text)
            long = [line for line in text.splitlines() if len(line) > 120 and line[0] not in "|#!"]
            self.assertEqual(long, [], m.NAME)

    def test_a_failure_is_plain_and_a_wrong_page_is_told(self):
        m = cli.PAPERS[0]
        text = render.paper_page(m, self.part(m))
        self.assertIn(f"**{FAILS}**", text)
        self.assertIn("not explained", text)
        self.assertIn("wrong: MISMATCH page", text)
        self.assertIn("no scheme cervera99", text)
        self.assertNotIn("## Simulated", text)
        over = render.overview(cli.PAPERS, {"papers": {m.NAME: self.part(m)}}, {m.NAME: self.beside(m)})
        self.assertIn("What does not hold", over)
        self.assertIn("(cervera.md) | live |", over)
        self.assertIn("(cervera.md) | simulated | 0 | 1 |", over)

    def test_the_page_tells_that_rounds_were_added(self):
        m = cli.PAPERS[0]
        page = lambda **more: " ".join(render.paper_page(m, {**self.part(m), **more}).split())
        self.assertIn("All rounds come from one series.", page(series=1))
        added = "Rounds that are added after a look at the results (`--add`) raise this chance above 5 of 100."
        self.assertIn(f"The rounds come from 2 series. {added}", page(series=2))
        for unknown in (page(), page(series=None)):
            self.assertIn(f"It was not recorded how many series the rounds come from. {added}", unknown)

    def test_simulated_costs_stand_in_the_rows_of_their_schemes(self):
        numbers = {"cost(Stylo zram)": 64.2, "cost(Stylo storage)": 141.0, "to storage(Stylo zswap)": 0.0}
        part = {"numbers": numbers, "recorded": {"numbers": {}}}
        beside = simulated.Simulated(part, 1, han.own)
        tables = {t.title[:4]: "\n".join(render.compared_table(t, {}, [], beside)) for t in han.TABLES}
        self.assertIn("| zram alone (live: with a swap tier) | 64.20 |", tables["Cost"])
        self.assertIn("| storage alone | 141.00 |", tables["Cost"])
        self.assertIn("| zswap | 0 |", tables["Page"])

    def test_rows_that_are_only_simulated_are_shown(self):
        for rows, prefix in ((tuduce.NS2_PRINTED, "ns2"), (tuduce.QSIM_PRINTED, "qsim")):
            shown = [t.rows for t in tuduce.TABLES if f"{prefix} {rows[0]}" in t.rows]
            self.assertEqual(shown, [tuple(f"{prefix} {row}" for row in rows)])
            for row in rows:
                self.assertIn(f"speedup({prefix} {row})", tuduce.PUBLISHED)

    def test_published_beside_own_only_where_there_is_any(self):
        t = shape.Table(
            "T", "Fig. 1", "row", ("x", "y"), (shape.Column("p", "p({})", 1, 1), shape.Column("q", "q({})"))
        )
        rounds = [{"p(x)": 1.5, "p(y)": 0.8, "q(x)": 3}, {"p(x)": 1.6, "p(y)": 0.8, "q(x)": None}]
        text = "\n".join(render.compared_table(t, {"p(x)": (1.2, 2.1), "p(y)": 0.9}, rounds, None))
        self.assertIn("| row | p: paper | p: live | q: live |", text)
        self.assertIn("| x | 1.2 to 2.1 | 1.6 [1.5..1.6] | 3.00 |", text)
        self.assertIn("p, live: 2 of 2 on the published side of 1, 1 of 1 pairs in the published order", text)
        part = {"numbers": {"p(x)": [2.0, 4.0]}, "recorded": {"numbers": {"p(y)": 0.7}}}
        text = "\n".join(render.compared_table(t, {}, rounds, simulated.Simulated(part, 2, dict)))
        self.assertIn("| row | p: live | p: simulated | p: recorded | q: live |", text)
        self.assertIn("| x | 1.6 [1.5..1.6] | 3.0 [2.0..4.0] | – | 3.00 |", text)
        self.assertIn("| y | 0.8 | – | 0.7 | – |", text)

    def test_a_figure_has_a_row_for_each_number_that_is_there(self):
        f = figure.Figure("T & U", "x", (("a row", "a", None), ("a quotient", "a", "b"), ("none", "c", None)))
        drawn = figure.draw(f, {"a": (1, 2)}, [{"a": 3, "b": 4}, {"a": 5, "b": 4}])
        self.assertIn("T &amp; U", drawn)
        self.assertIn(">a quotient<", drawn)
        self.assertNotIn(">none<", drawn)
        # Two rows and the legend.
        self.assertEqual((drawn.count("<circle"), drawn.count("<polygon")), (3, 3))
        self.assertEqual(figure.row_values(f.rows[1], [{"a": 3, "b": 4}, {"a": 5, "b": 4}]), (1.0, 0.75, 1.25))
        self.assertIsNone(figure.draw(f, {"a": 1}, [{}]))

    def test_ticks_of_an_axis(self):
        self.assertEqual(figure.ticks(0.5, 3), [0.5, 1, 2])
        self.assertEqual(figure.ticks(1, 10_000), [1, 10, 100, 1000, 10_000])

    def test_factors_page(self):
        times = {factors.label(levels): 2.0 + levels[0] for levels in factors.GRID}
        shares = factors.shares({levels: times[factors.label(levels)] for levels in factors.GRID})
        text = render.factors_page(
            factors, {"times": {"1.7": times}, "noise": {"1.7": 0.4}, "shares": {"1.7": shares}}, self.facts
        )
        self.assertIn("| CF | 27.91 | 100.00 |", text)
        self.assertIn("1.7 GB: the settings differ by 2.00 s, rounds of the same setting by up to 0.40 s.", text)
        self.assertIn("noise", render.scatter([1, 1.5], 0.3))
        self.assertNotIn("noise", render.scatter([1, 1.7], 0.3))
        self.assertIn("one round only", render.scatter([1, 9], None))


def open_text(path):
    try:
        with open(path) as f:
            return f.read()
    except OSError:
        return " Z "


def run_of(measured=1.0):
    return {
        "status": "ok",
        "measured": measured,
        "wall": 1.5,
        "stderr": "",
        "entries": [("a", 0, 9.0), ("a", 1, 0.1), ("b", 1, 0.3)],
        "samples": [
            {"swap": {"read_bytes": 100}, "pool": {"zpages": 300, "frames": 256}},
            {"swap": {"read_bytes": 350}, "pool": {"zpages": 500, "frames": 256}, "now": {"swap_bytes": 77, "staged_bytes": 7}},
        ],
        "stats": {
            "codecs": {"a": {"in_bytes": 300, "out_bytes": 100}, "b": {"in_bytes": 100, "out_bytes": 100}},
            "faults": {"total": 5},
        },
    }


class Summaries(unittest.TestCase):
    cell = engine.Cell("w", "c", ("true",), MIB, "memfit")

    def test_numbers_by_hand(self):
        s = engine.summarise(self.cell, [run_of(1.0), run_of(3.0)])
        self.assertEqual((s["status"], s["seconds"]["median"], s["ratio"], s["faults"]), ("ok", 2.0, 0.5, 5))
        self.assertEqual((s["density"], s["sampled_read_bytes"], s["sampled_slot_bytes"]), (400, 250, 70))
        self.assertAlmostEqual(s["entry"]["median"], 0.2)
        self.assertEqual(s["entries"], {"a": 0.1, "b": 0.3})

    def test_logical_memory_counts_no_page_twice(self):
        now = {"resident_bytes": 10, "unmanaged_bytes": 20, "metadata_bytes": 40, "staged_bytes": 80, "pool_bytes": 160}
        now["pages"] = {"staged": 1, "pooled": 2, "swapped": 3, "filled": 4, "evicting": 5, "quarantined": 6}
        run = {**run_of(), "samples": [{"now": now}] * 2}
        self.assertEqual(engine.logical(run), 70 + 15 * 4096)

    def test_what_the_pool_refused_was_not_written_back(self):
        refused = {"incompressible": 1, "by_entropy": 0, "by_need": 0, "in_advance": 2}
        counts = lambda written, full: {"to_swap": written, "rejected": {**refused, "pool_full": full}}
        run = {**run_of(), "samples": [{"evictions": counts(10, 3)}]}
        self.assertEqual(engine.written_back(run), 4)
        self.assertEqual(engine.written_back(run, ("incompressible",)), 5, "what the pool took was written back")
        self.assertEqual(engine.written_back({**run, "samples": [{"evictions": counts(5, 9)}]}), 0)
        self.assertIsNone(engine.written_back(run_of()))

    def test_the_worst_status_counts_and_a_bad_run_gives_no_number(self):
        bad = {**run_of(0.001), "status": "wrong"}
        cells = engine.Cells(
            {
                ("w", "c"): engine.summarise(self.cell, [run_of(), bad]),
                ("w", "d"): engine.summarise(self.cell, [run_of(2.0)]),
            }
        )
        self.assertEqual(cells["w", "c"]["status"], "wrong")
        self.assertIsNone(cells.value("w", "c"))
        self.assertIsNone(cells.quotient("w", "c", "d"))
        self.assertEqual(cells.value("w", "d"), 2.0)
        self.assertIsNone(cells.value("w", "none"))

    def test_a_quotient_of_nothing(self):
        zero = engine.summarise(self.cell, [{**run_of(), "stats": {"swap": {"write_bytes": 0}}}])
        cells = engine.Cells({("w", "c"): zero})
        self.assertIsNone(cells.quotient("w", "c", "c", "write_bytes"))
        self.assertEqual(cells.value("w", "c", "write_bytes"), 0)


@unittest.skipUnless(shutil.which("cc"), "needs a C compiler")
class Programs(WithContext):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ctx.build()

    def run_cell(self, command, timeout=20):
        return engine.run(self.ctx, engine.Cell("w", "c", tuple(command), MIB, "memfit", timeout=timeout))

    def test_each_checks_its_data_and_tells_its_time(self):
        p = self.ctx.program
        for command in (
            p("thrasher", 2, 2, 400),
            p("rand", 2, 3000, 5),
            p("nodes", 2, 500, 150, 10, 125),
            p("fft", 32, 64, 2),
            p("fft", 32, 64, 1, 1),
            p("simulator", 2, 950, 9000),
            p("simulator", 2, 5, 9000),
            p("film", 3, 2),
            p("queens", 6),
            p("traffic", 2, 9000),
            p("hog", 2, "mix"),
            p("hog", 2, "word"),
            self.ctx.many(3, *p("film", 2, 1)),
        ):
            r = self.run_cell(command)
            self.assertEqual(r["status"], "ok", (command, r["stderr"]))
            self.assertGreater(r["measured"], 0)

    def test_a_failure_among_many_is_one(self):
        self.assertEqual(self.run_cell(self.ctx.many(2, "false"))["status"], "failed")
        r = self.run_cell(self.ctx.many(2, "sh", "-c", "echo MISMATCH page 3 >&2; exit 1"))
        self.assertEqual(r["status"], "wrong")

    def test_a_run_is_ended_at_its_bound(self):
        r = self.run_cell(("sh", "-c", "sleep 60 & echo $! >child; echo measured 1; wait"), timeout=0.5)
        self.assertEqual(r["status"], "timeout")
        self.assertLess(r["wall"], 15)
        with open(f"{self.ctx.work}/child") as f:
            child = int(f.read())
        for _ in range(500):
            if not os.path.exists(f"/proc/{child}") or " Z " in open_text(f"/proc/{child}/stat"):
                return
            time.sleep(0.01)
        self.fail("a child was left behind")

    def test_a_run_without_a_time_has_failed(self):
        self.assertEqual(self.run_cell(("true",))["status"], "failed")

    def test_real_programs_answer_and_their_end_by_a_kill_is_told_from_others(self):
        here = turns.present()
        self.assertIn("python", [program.name for program in here])
        for program in here:
            program.prepare(self.ctx.work)
            program.start(200)
            program.ask("r", 1)
            program.ask("u", 2)
            program.process.kill()
            with self.assertRaises(turns.Killed, msg=program.name):
                program.ask("r", 3)
            program.start(200)
            program.ask("r", 4)
            program.quit()
            program.start(64)
            program.process.terminate()
            program.process.wait(20)
            with self.assertRaises(SystemExit, msg=program.name):
                program.ask("r", 1)

    def test_a_wrong_record_of_a_real_program_is_noticed(self):
        program = next((p for p in turns.present() if p.name == "sqlite"), None)
        if program is None:
            self.skipTest("there is no sqlite3")
        program.start(200)
        program.say("UPDATE records SET text = 'other' WHERE i = 0;")
        with self.assertRaisesRegex(SystemExit, "MISMATCH: sqlite"):
            program.ask("r", 1)
        program.process.kill()
        program.process.wait(20)

    def test_applications_are_triggered_and_a_wrong_file_page_is_noticed(self):
        from papers.apps import spec

        rows = [("one", 400, "phone", 200, 200, 0, 400, 0), ("two", 300, "idle", 100, 300, 1000, 500, 300)]
        path = spec(self.ctx, "two", [*rows, ("services", 200, "idle", 400, 400, 0, 100, 2000)])
        command = self.ctx.program("apps", 4, "shuffle", path)
        ends = self.run_cell((*command, "ends"))
        self.assertEqual((ends["status"], len(ends["entries"]), len(ends["samples"])), ("ok", 8, 4), ends["stderr"])
        r = self.run_cell(command)
        self.assertEqual((r["status"], len(r["entries"]), len(r["samples"])), ("ok", 8, 4), r["stderr"])
        self.assertEqual(
            sorted({e[:2] for e in r["entries"]}), sorted((n, t) for n in ("one", "two") for t in range(4))
        )
        with open(f"{self.ctx.work}/two/two.media", "r+b") as f:
            f.write(bytes(300 << 10))
        self.assertEqual(self.run_cell(command)["status"], "wrong")
        with open(path, "a") as f:
            f.write("three 4 idle 0\n")
        self.assertIn("application 4 is not complete", self.run_cell(command)["stderr"])

    def test_a_run_gets_what_it_may_of_the_machine(self):
        said = self.ctx.become(engine.Machine(cpus=1))
        self.addCleanup(self.ctx.leave)
        self.assertEqual(said, "1 CPU")
        r = self.run_cell(("sh", "-c", "echo measured $(nproc)"))
        self.assertEqual((r["status"], r["measured"]), ("ok", 1), r["stderr"])

    def test_the_disk_is_slowed_down_or_it_is_said_why_not(self):
        said = self.ctx.become(engine.Machine(disk_reads=20))
        self.addCleanup(self.ctx.leave)
        if not self.ctx.slow:
            self.assertIn("as fast as it is", said)
            return
        group = self.ctx.slow.group
        self.assertIn("20 reads a second", said)
        line = f"grep -q /{os.path.basename(group)}$ /proc/self/cgroup && echo measured 1"
        r = self.run_cell(("sh", "-c", line))
        self.assertEqual(r["status"], "ok", r["stderr"])
        limits = [f for f in os.listdir(group) if f.endswith("read_iops_device") or f == "io.max"]
        told = "".join(pathlib.Path(group, f).read_text() for f in limits)
        self.assertEqual(len(re.findall(r"(?: |riops=)20\b", told)), 1, told)
        self.ctx.leave()
        self.assertFalse(os.path.exists(group))

    def test_contents_compress_as_named(self):
        source = f"{self.folder}/page.c"
        with open(source, "w") as f:
            f.write(
                f'#include "{HERE}/papers/programs/common.h"\nint main(int c, char **v) {{ unsigned char p[PAGE];'
                " interleaved_make(p, 7, arg_u64(c, v, 2, 0), arg_u64(c, v, 1, 0)); return fwrite(p, PAGE, 1, stdout)"
                " != 1; }\n"
            )
        subprocess.run(["cc", "-O1", "-o", f"{self.folder}/page", source], check=True)
        page = lambda *args: subprocess.run(
            [f"{self.folder}/page", *map(str, args)], capture_output=True, check=True
        ).stdout
        self.assertEqual(page(0), bytes(4096))
        for permille, random in ((50, 3), (400, 26), (500, 32), (1000, 64)):
            p = page(permille)
            for block in range(0, 4096, 64):
                self.assertEqual(p[block + random : block + 64], bytes(64 - random))
            self.assertGreater(sum(b > 0 for b in p), 64 * random * 0.95)
        self.assertEqual(sum(any(page(5)[b : b + 64]) for b in range(0, 4096, 64)), 5)
        self.assertNotEqual(page(400, 0), page(400, 1))


class Command(unittest.TestCase):
    def call(self, *args):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            try:
                code = cli.main(list(args))
            except SystemExit as e:
                code = e.code
        return code, out.getvalue(), err.getvalue()

    def test_check(self):
        code, out, _ = self.call("factors", "--check")
        self.assertEqual(code, 0)
        self.assertIn("as printed", out)

    def test_what_does_not_exist_is_refused(self):
        self.assertEqual(self.call("--only", "knuth")[0], 2)
        self.assertEqual(self.call("factors", "--sizes", "9")[0], 2)
        self.assertEqual(self.call("--memfit", "/nonexistent/memfit")[0], 2)

    def test_pages_again_with_the_explanations_of_today(self):
        with tempfile.TemporaryDirectory() as d:
            self.assertEqual(self.call("pages", "--out", d)[0], 2, "no results")
            o = cli.parse(["--out", d])
            part = Rendering().part(han)
            part["statements"] = []
            cli.save(o, {"schema": 2, "papers": {"han": part}})
            self.assertEqual(self.call("pages", "--out", d)[0], 0)
            self.assertEqual(len(cli.load(f"{d}/result.json")["papers"]["han"]["statements"]), len(han.STATEMENTS))
            code, _, err = self.call("pages", "--check", "--out", d)
            self.assertEqual((code, "simulated.json is missing" in err), (1, True))
            with open(f"{d}/simulated.json", "w") as f:
                f.write('{"seeds": 1, "papers": {}}')
            self.assertEqual(self.call("pages", "--check", "--out", d)[0], 0)
            with open(f"{d}/han.md", "a") as f:
                f.write("more\n")
            code, _, err = self.call("pages", "--check", "--out", d)
            self.assertEqual((code, err.count("is not what the results give")), (1, 1))

    def test_the_documents_are_what_the_results_give(self):
        code, _, err = self.call("pages", "--check")
        self.assertEqual(code, 0, err)

    def test_report_of_an_existing_result(self):
        with tempfile.TemporaryDirectory() as d:
            memfit, page = f"{d}/memfit", f"{d}/page.html"
            with open(memfit, "w") as f:
                f.write('#!/bin/sh\n[ "$2" = --help ] || cat >"$4"\n')
            os.chmod(memfit, 0o755)
            options = ("--memfit", memfit, "--report", page, "--from")
            source = f"{HERE}/../../docs/papers/result.json"
            self.assertEqual(self.call(*options, source)[0], 0)
            with open(page) as f:
                shown = json.load(f)
            self.assertEqual(len(shown["sections"]), 2 + len(cli.PAPERS))
            self.assertEqual(len(shown["sections"][-1]["tables"]), len(cli.PAPERS))
            for module, section in zip(cli.PAPERS, shown["sections"][1:-1]):
                columns = [c["name"] for c in section["tables"][0]["columns"]]
                rows = [dict(zip(columns, row)) for row in section["tables"][0]["rows"]]
                self.assertEqual([r["Statement"] for r in rows], [s.text for s in module.STATEMENTS])
                self.assertTrue({r["Verdict"] for r in rows} <= set(VERDICTS))
                self.assertTrue(any(r["Published"] and r["Here"] for r in rows), module.NAME)
                self.assertTrue(section["figures"], module.NAME)
                for figure in section["figures"]:
                    self.assertEqual([s["name"] for s in figure["series"]], ["published", "here"])
                    self.assertEqual({len(s["values"]) for s in figure["series"]}, {len(figure["places"])})
            fastest = next(r for r in shown["sections"][3]["tables"][0]["rows"] if r[0] == "hybrid is fastest on average")
            self.assertIn("entry(hybrid average) = 1.36e+03 < entry(zram average) = 1.74e+03", fastest[4])
            os.unlink(page)
            with open(f"{d}/bad.json", "w") as f:
                f.write('{"schema": 2, "kind": "papers", "papers": {"han": {}}}')
            for path, why in ((f"{d}/none", "cannot be read"), (memfit, "no JSON"), (f"{d}/bad.json", "the result has no")):
                code, _, err = self.call(*options, path)
                self.assertEqual(code, 2)
                self.assertIn(f"{path}: ", err)
                self.assertIn(why, err)
            self.assertFalse(os.path.exists(page))
            self.assertEqual(self.call("--from", source)[0], 2, "nowhere to")
            self.assertEqual(self.call("factors", *options[:4])[0], 2)

    def test_results_of_the_other_papers_are_kept(self):
        with tempfile.TemporaryDirectory() as d:
            o = cli.parse(["--out", d])
            cli.save(o, {"schema": 2, "papers": {"han": Rendering().part(han)}})
            self.assertEqual(sorted(os.listdir(d)), ["README.md", "han.md", "han.svg", "result.json"])
            self.assertIn("han", cli.load(f"{d}/result.json")["papers"])
            self.assertEqual(cli.load(f"{d}/result.json")["schema"], 2)


if __name__ == "__main__":
    unittest.main()
