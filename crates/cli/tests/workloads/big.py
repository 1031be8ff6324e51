"""big.py SEED MIB PASSES: one big process."""
import sys

import blocks

seed, mib, passes = map(int, sys.argv[1:4])
memory = blocks.build(seed, mib)
print("built", flush=True)
print(seed, blocks.churn(memory, seed, passes), flush=True)
