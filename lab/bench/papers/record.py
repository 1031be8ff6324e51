"""Recordings of the papers' programs, for `make papers-sim`: each cell of the live runs that a simulation stands beside, once, with
`memfit run --record`. PAPER/WORKLOAD/CONFIG.memfit, under the names of the simulations (blanks as _)."""

import os
import time

from . import engine

MIB = 1 << 20
# A recording that is larger is not kept.
LARGEST = 8 * MIB
# Names of the live runs: those of the simulations, where they differ; several if one run stands for them all. None: there is none.
WORKLOADS = {
    "cervera": {"fft10": "fft-x10", "sort6": "sort-x6", "simulator5": "simulator-x5", "xanim4": "xanim-x4"},
    "tuduce": {"smv": "smv 100"},
    "han": {"turns": "Stylo", "programs": None},
    "salahuddin": {},
    "ezswap": {},
}
CONFIGS = {
    "cervera": {"swap": ["plain"], "cswap": ["cache 1024"], "cswap-best": ["best"], "cache-256K": ["cache 256"]}
    | {"cache-4M": ["cache 4096"], "reads-too": ["reads too"], "memfit": None}
    | {f"threshold-{percent}": [f"threshold {percent}"] for percent in (1, 20, 70)},
    "tuduce": {"static-50": None, "static-100": ["100"], "unlimited": ["none"], "memfit": None}
    | {f"static-{mb}": [f"fixed {mb}"] for mb in (16, 64, 200)},
    "han": {"zram-free": ["zram"], "swap": None},
    "salahuddin": {"swap": None, "memfit": None, "enhanced": ["enhanced"]}
    | {f"cap-{cap}": [f"cap {cap}"] for cap in (1024, 2048, 4096)},
    "ezswap": {"memfit": None},
}

def places(paper, cell):
    """Under which names a run of this cell is kept."""
    configs = CONFIGS[paper].get(cell.config, [cell.config])
    workload = WORKLOADS[paper].get(cell.workload, cell.workload)
    return [f"{paper}/{workload}/{config}.memfit".replace(" ", "_") for config in configs or () if workload]


def record(ctx, cell, path):
    """Why there is none, or nothing."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = path + ".new"
    ctx.options = ("--record", new)
    try:
        r = engine.run(ctx, cell)
        size = os.path.getsize(new) if os.path.exists(new) else 0
        if r["status"] != "ok":
            return f"{r['status']} {r['stderr'][-200:]}"
        if size > LARGEST:
            return f"the recording is larger than {LARGEST // MIB} MiB: {size // MIB}"
        os.rename(new, path)
        return None
    finally:
        ctx.options = ()
        if os.path.exists(new):
            os.unlink(new)


def record_all(ctx, papers, out, deadline, log):
    """Records all cells that a simulation stands beside; 0 if all were made."""
    bad = 0
    for module in papers:
        for cell in module.cells(ctx):
            paths = [f"{out}/{place}" for place in places(module.NAME, cell)]
            if not paths or not ctx.has(cell.scheme):
                continue
            if time.monotonic() > deadline:
                log("the time bound: what was recorded until now is kept")
                return 1
            why = record(ctx, cell, paths[0])
            log(f"{module.NAME}, {cell.workload}, {cell.config}: {why or os.path.getsize(paths[0])}")
            for path in paths[1:] if not why else ():
                if os.path.exists(path):
                    os.unlink(path)
                os.link(paths[0], path)
            bad |= why is not None
    return int(bad)
