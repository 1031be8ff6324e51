"""Tests of lab/compat that run no program: python3 -m unittest lab/compat/test_compat.py"""

import json
import os
import shutil
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import compat  # noqa: E402

MIB = compat.MIB


def row(**runs):
    return {"name": "jq", "version": "jq-1.6", "peak": 100 * MIB, "seconds": 2.0, "output": "x", "budget": 50 * MIB, "runs": runs, "machine": "M"}


class Published(unittest.TestCase):
    def test_what_a_row_says(self):
        memfit = {"result": "same", "seconds": 5.0, "evicted": 130 * MIB}
        self.assertEqual(
            compat.published(row(memfit=memfit, zram={"result": "same", "seconds": 3.0})),
            {"machine": "M", "version": "1.6", "peak": 100, "budget": 50, "peak_percent": "", "evicted": 130, "result": "right",
             "time": "2.5", "zram": "1.5"})
        late = compat.published(row(memfit={"result": "differs", "seconds": 5.0}, zram={"result": "timeout", "seconds": 0, "bound": 60}))
        self.assertEqual((late["result"], late["time"], late["zram"]), ("WRONG OUTPUT", "", "not in time (60 s)"))
        self.assertEqual(compat.published({**row(), "failed": "exit 1"})["result"], "fails without memfit, too")
        over = compat.published(row(memfit={"result": "over budget", "seconds": 5.0, "peak": 56 * MIB}))
        self.assertEqual((over["peak_percent"], over["result"], over["time"]), (112, "over the budget", ""))

    def test_a_run_of_memfit_keeps_the_budget_or_says_so(self):
        for peak, output, want in ((52, "x", "same"), (40, "x", "same"), (56, "x", "over budget"), (56, "y", "differs"), (None, "x", "same")):
            run = {"status": "ok", "output": output, "wall_ns": 1, "peak_total": peak and peak * MIB}
            bench = mock.Mock(options=compat.parse([]), out="/nonexistent")
            bench.run_once.side_effect = lambda config, work, budget=None: dict(run) if budget else {**run, "output": "x", "peak_total": 100 * MIB}
            with mock.patch.multiple(compat, prepare=mock.DEFAULT, version=lambda *_: "1", log=mock.DEFAULT):
                got = compat.run_program(bench, compat.PROGRAMS[0], {})
            self.assertEqual(got["runs"]["memfit"]["result"], want, (peak, output))

    def test_the_document_is_what_the_results_give(self):
        with open(compat.PUBLISHED) as f:
            rows = json.load(f)
        with open(compat.DOCUMENT) as f:
            self.assertIn("\n".join(compat.document(rows)) + "\n", f.read(), "lab/compat/compat.py --document makes it again")
        names = [p.name for p in compat.PROGRAMS]
        self.assertEqual([name for name in rows if name not in names], [], "no such program")

    def test_results_of_other_programs_stay(self):
        with tempfile.TemporaryDirectory() as d:
            page, results = shutil.copy(compat.DOCUMENT, d), shutil.copy(compat.PUBLISHED, d)
            with mock.patch.multiple(compat, DOCUMENT=page, PUBLISHED=results):
                with open(results) as f:
                    before = json.load(f)
                compat.publish({"jq": row(memfit={"result": "same", "seconds": 5.0, "evicted": 130 * MIB})}, ["memfit"])
                with open(results) as f:
                    after = json.load(f)
            self.assertEqual((after["jq"]["machine"], after["jq"]["zram"]), ("M", before["jq"]["zram"]))
            self.assertEqual({**before, "jq": 0}, {**after, "jq": 0})
            with open(page) as f:
                self.assertRegex(f.read(), r"\n\| jq \| \d, \d \| 1.6 \| 100 \| 50 \|( +\|)? 130 \| right \| 2.5 \| [\d.]+ \|\n")

    def test_zram_beside_memfit_on_another_machine(self):
        old = {"machine": "A", "version": "1.6", "peak": 120, "budget": 60, "evicted": 90, "result": "right", "time": "4.0", "zram": ""}
        new = compat.merged(old, row(zram={"result": "same", "seconds": 3.0}), ["zram"])
        self.assertEqual(new, {**old, "zram": "1.5", "zram_machine": "M"})
        lines = compat.document({"jq": new})
        self.assertIn("1. A", lines)
        self.assertIn("2. M", lines)
        self.assertEqual(lines[-1], "| jq | 1, 2 | 1.6 | 120 | 60 | 90 | right | 4.0 | 1.5 |")
        # Of another version nothing is known.
        self.assertEqual(compat.merged({**old, "version": "1.7"}, row(zram={"result": "same", "seconds": 3.0}), ["zram"])["result"], "not run")

    def test_cells_that_were_not_measured_stay(self):
        old = {"machine": "A", "version": "1.6", "peak": 120, "budget": 60, "evicted": 90, "result": "right", "time": "4.0", "zram": "1.5"}
        fails = {**row(), "failed": "exit 1"}
        self.assertEqual(compat.merged(old, fails, ["zram"]), old)
        self.assertEqual(compat.merged(old, fails, ["memfit"])["result"], "fails without memfit, too")
        new = compat.merged(old, row(memfit={"result": "same", "seconds": 5.0, "evicted": 130 * MIB}), ["memfit"])
        self.assertEqual((new["machine"], new["time"], new["zram"], compat.machines_of(new)), ("M", "2.5", "1.5", ["M", "A"]))
        # On the same machine, with another budget: nothing of the old row stays.
        self.assertEqual(compat.merged({**old, "machine": "M"}, row(memfit={"result": "same", "seconds": 5.0}), ["memfit"])["zram"], "")
        near = compat.merged({**old, "machine": "M", "budget": 49}, row(memfit={"result": "same", "seconds": 5.0}), ["memfit"])
        self.assertEqual((near["zram"], compat.machines_of(near)), ("1.5", ["M"]))
        failed = {"machine": "A", "version": "1.6", "result": "fails without memfit, too"}
        self.assertEqual(compat.merged(failed, row(zram={"result": "same", "seconds": 3.0}), ["zram"])["result"], "not run")
        # With both, nothing of the old row stays.
        both = row(memfit={"result": "same", "seconds": 5.0, "evicted": 0}, zram={"result": "oom", "seconds": 0})
        both = compat.merged(old, both, ["memfit", "zram"])
        self.assertEqual((both["zram"], compat.machines_of(both)), ("killed", ["M"]))


if __name__ == "__main__":
    unittest.main()
