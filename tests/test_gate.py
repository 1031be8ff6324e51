"""Tests of scripts/gate in a small repository: python3 -m unittest tests/test_gate.py"""
import os
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

SCRIPTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "scripts")
GIT = ["git", "-c", "user.name=x", "-c", "user.email=x", "-c", "init.defaultBranch=main"]


class Gate(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        os.makedirs(f"{self.dir}/.ci")
        os.makedirs(f"{self.dir}/scripts")
        shutil.copy(f"{SCRIPTS}/gate", f"{self.dir}/scripts")
        self.write(".gitignore", "target\n")
        self.git("init", "--quiet")

    def write(self, name, text):
        with open(f"{self.dir}/{name}", "w", encoding="utf-8") as file:
            file.write(text)

    def git(self, *words):
        return subprocess.run([*GIT, *words], cwd=self.dir, check=True, capture_output=True, text=True).stdout.strip()

    def gate(self, *words, ci="true", hog="import time; time.sleep(60)"):
        """Exit status, what it said, and its notes by their names."""
        self.write(".ci/run", ci)
        self.write("scripts/memory-hog", hog)
        self.git("add", ".")
        self.git("commit", "--quiet", "--allow-empty", "-m", "x")
        self.tree = self.git("rev-parse", "HEAD^{tree}")
        r = subprocess.run([f"{self.dir}/scripts/gate", *words], cwd=self.dir, capture_output=True, text=True, timeout=100, check=False)
        place = f"{self.dir}/target/gate"
        notes = {}
        for name in os.listdir(place):
            if not name.startswith("log"):
                with open(f"{place}/{name}", encoding="utf-8") as file:
                    notes[name] = file.read()
        return r.returncode, r.stdout + r.stderr, notes

    def test_a_pass_is_noted_by_the_tree_that_ran(self):
        status, said, notes = self.gate()
        self.assertEqual((status, list(notes)), (0, [self.tree]), said)
        self.assertIn("passed in", notes[self.tree])
        status, said, _ = self.gate(ci="exit 3")
        self.assertEqual(status, 3, said)

    def test_head_that_moves_before_the_clone_is_what_ran(self):
        # The gate calls mktemp just before it clones.
        os.mkdir(f"{self.dir}/bin")
        commit = " ".join([*GIT, "commit", "--quiet", "-m", "later"])
        self.write("bin/mktemp", f'#!/bin/sh\necho >later && git add later && {commit} && exec {shutil.which("mktemp")} "$@"\n')
        os.chmod(f"{self.dir}/bin/mktemp", 0o755)
        with mock.patch.dict(os.environ, PATH=f"{self.dir}/bin:{os.environ['PATH']}"):
            status, said, notes = self.gate(ci="git ls-files --error-unmatch later")
        now = self.git("rev-parse", "HEAD^{tree}")
        self.assertEqual((status, list(notes)), (0, [now]), said)
        self.assertNotEqual(now, self.tree)

    def test_a_loaded_pass_had_its_load_to_the_end(self):
        status, said, notes = self.gate("--loaded", ci="sleep 1")
        self.assertEqual(status, 0, said)
        self.assertIn("passed-loaded in", notes[self.tree])
        wait = f"while [ ! -e {self.dir}/target/full ]; do sleep .1; done; sleep 2"
        status, said, notes = self.gate("--loaded", ci=wait, hog="open('target/full', 'w'); raise MemoryError")
        self.assertEqual((status, self.tree in notes), (1, False), said)
        self.assertIn("the load ended", said)


if __name__ == "__main__":
    unittest.main()
