#!/usr/bin/env python3
"""unit.py FILE...: as python3 -m unittest, but notes in the file MEMFIT_TEST_SKIPPED which tests were skipped, and why."""
import os
import sys
import unittest


class Result(unittest.TextTestResult):
    def addSkip(self, test, reason):  # noqa: N802
        super().addSkip(test, reason)
        path = os.environ.get("MEMFIT_TEST_SKIPPED")
        if path:
            # A class that is skipped is told once.
            whole = getattr(type(test), "__unittest_skip__", False)
            name = f"{type(test).__module__}.{type(test).__qualname__}" if whole else test.id()
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{name}: {reason}\n")


if __name__ == "__main__":
    sys.path[0] = ""
    unittest.main(module=None, testRunner=unittest.TextTestRunner(resultclass=Result))
