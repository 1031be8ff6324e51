#!/usr/bin/env python3
"""The published comparisons of five compressed-swap schemes, run again in the live engine. See README.md, "Papers"."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from papers import cli  # noqa: E402

if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
