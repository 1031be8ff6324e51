"""Tests of tests/run: python3 -m unittest tests/test_run.py"""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run")
SPEC = importlib.util.spec_from_loader("run", importlib.machinery.SourceFileLoader("run", PATH))
run = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(run)

JUNIT = """<?xml version="1.0"?>
<testsuites><testsuite name="memfit::behaviour">
<testcase name="top::keys"/>
<testcase name="tree::forks"><failure type="test failure with exit code 101"/>
<system-err>thread 'tree::forks' (7) panicked at tree.rs:60:5:
not within 60 s
stack backtrace:</system-err></testcase>
<testcase name="swap::full"><failure type="timeout"/></testcase>
</testsuite><testsuite name="memfit-core"><testcase name="list::tests::ends"/></testsuite></testsuites>
"""
FORKS, FULL = "memfit::behaviour tree::forks", "memfit::behaviour swap::full"
DATA = "memfit-core list::tests::ends"


class Kinds(unittest.TestCase):
    def test_failures_are_found_with_what_they_said(self):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write(JUNIT)
            file.flush()
            self.assertEqual(run.failures(file.name), {FORKS: "panicked at tree.rs:60:5: not within 60 s", FULL: "timeout"})

    def test_only_behaviour_is_run_again(self):
        for name in (FORKS, "memfit::launcher inherited_state", "memfit-torture::native behaviour::stops",
                     "memfit-report::browser report_in_a_browser", "memfit-os sched::behaviour::idle"):
            self.assertEqual(run.to_run_again({name: ""}), [name])
        for name in (DATA, "memfit::data cli::usage", "memfit-model::rules behaviours", "memfit misbehaviour::x"):
            self.assertEqual(run.to_run_again({name: ""}), [])

    def test_nothing_is_run_again_beside_a_failure_that_is_final_or_after_too_many(self):
        self.assertEqual(run.to_run_again({FORKS: "", DATA: ""}), [])
        self.assertEqual(run.to_run_again({f"memfit::behaviour t{n}": "" for n in range(run.AGAIN_MAX + 1)}), [])


class Outcomes(unittest.TestCase):
    """Whole runs, with a cargo-nextest that gives these results one after the other."""

    def outcome(self, results, wrong=""):
        asked = []

        def nextest(_profile, *options, threads=run.THREADS):
            asked.append((threads, *options))
            if wrong:
                with open(os.environ["MEMFIT_TEST_WRONG"], "a", encoding="utf-8") as file:
                    file.write(wrong)
            return results[len(asked) - 1]

        with tempfile.TemporaryDirectory() as directory, mock.patch.dict(os.environ), \
                mock.patch.object(run, "RESULTS", os.path.join(directory, "tests")), \
                mock.patch.object(run, "nextest", nextest), \
                mock.patch.object(run.subprocess, "run", return_value=mock.Mock(returncode=0)), \
                contextlib.redirect_stdout(io.StringIO()) as out:
            code = run.main([])
            return code, asked, run.lines("unstable"), out.getvalue()

    def test_a_run_without_failure_passes(self):
        self.assertEqual(self.outcome([(0, {})])[:3], (0, [(run.THREADS,)], []))

    def test_behaviour_that_passes_then_is_unstable(self):
        code, asked, unstable, out = self.outcome([(100, {FORKS: "60 s", FULL: "x"}), (0, {})])
        self.assertEqual((code, len(asked)), (0, 2))
        self.assertIn("(binary_id(=memfit::behaviour) & test(=tree::forks)) | (", asked[1][-1])
        self.assertEqual(asked[1][:3], (1, "--retries", "1"))
        self.assertEqual(unstable, [f"{FULL}: x", f"{FORKS}: 60 s"])
        self.assertIn("Unstable", out)

    def test_behaviour_that_fails_again_fails(self):
        code, _, unstable, _ = self.outcome([(100, {FORKS: "60 s", FULL: "x"}), (100, {FULL: "x"})])
        self.assertEqual((bool(code), unstable), (True, [f"{FORKS}: 60 s"]))

    def test_data_that_fails_is_final(self):
        code, asked, _, _ = self.outcome([(100, {FORKS: "60 s", DATA: "x"})])
        self.assertEqual((bool(code), len(asked)), (True, 1))

    def test_a_build_that_fails_is_final(self):
        code, asked, _, _ = self.outcome([(101, {})])
        self.assertEqual((bool(code), len(asked)), (True, 1))

    def test_wrong_contents_are_final_though_nothing_else_fails(self):
        code, asked, _, out = self.outcome([(0, {})], wrong="tree::forks: 3 of 4 pages\n")
        self.assertEqual((code, len(asked)), (1, 1))
        self.assertIn("WRONG CONTENTS", out)
        self.assertIn("tree::forks: 3 of 4 pages", out)
        code, asked, _, _ = self.outcome([(100, {FORKS: "wrong"})], wrong="tree::forks: 3 of 4 pages\n")
        self.assertEqual((code, len(asked)), (1, 1))


class Skipped(unittest.TestCase):
    """tests/unit.py, and tests that cannot run."""

    def test_what_was_skipped_is_noted(self):
        source = """import unittest
@unittest.skipUnless(False, "needs a compiler")
class Programs(unittest.TestCase):
    def test_one(self): pass
    def test_two(self): pass
class Others(unittest.TestCase):
    def test_skips(self): self.skipTest("there is no sqlite3")
    def test_passes(self): pass
    def test_fails(self): self.assertEqual(os, 0)
"""
        with tempfile.TemporaryDirectory() as directory:
            for name, text in ("test_fine.py", source.replace("os, 0", "0, 0")), ("test_bad.py", source):
                with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
                    file.write(text)
            skipped = os.path.join(directory, "skipped")
            statuses = [subprocess.run([sys.executable, "-B", os.path.join(os.path.dirname(PATH), "unit.py"), name],
                                       cwd=directory, env={**os.environ, "MEMFIT_TEST_SKIPPED": skipped},
                                       capture_output=True, check=False).returncode
                        for name in ("test_bad.py", "test_fine.py")]
            self.assertEqual(statuses, [1, 0])
            with open(skipped, encoding="utf-8") as file:
                noted = set(file.read().splitlines())
        self.assertEqual(noted, {f"test_{name}.{said}" for name in ("fine", "bad") for said in (
            "Programs: needs a compiler", "Others.test_skips: there is no sqlite3")})


if __name__ == "__main__":
    unittest.main()
