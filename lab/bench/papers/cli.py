"""The command: which papers, how many rounds, where to."""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import host
import page

from . import cervera, engine, ezswap, factors, figure, han, record, render, salahuddin, shape, simulated, tuduce
from .described import describe

PAPERS = (cervera, tuduce, han, salahuddin, ezswap)
ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
SCHEMA = 2


def log(text):
    print(f"papers: {text}", file=sys.stderr, flush=True)


class Stopped(BaseException):
    """A signal, or the time bound."""


def stop(number, _frame):
    raise Stopped(signal.Signals(number).name)


def parse(argv):
    target = os.environ.get("CARGO_TARGET_DIR") or f"{ROOT}/target"
    names = [m.NAME for m in PAPERS]
    p = argparse.ArgumentParser(prog="papers.py", description=__doc__)
    p.add_argument(
        "command",
        nargs="?",
        choices=("run", "record", "pages", "factors"),
        default="run",
        help="record: the runs that memfit-papers simulates again; pages: those of the last results again; factors: the grid of Tuduce's Tables 6 to 8 on this machine",
    )
    p.add_argument("--only", type=lambda s: s.split(","), default=names, metavar="A,B,..", help=", ".join(names))
    p.add_argument(
        "--rounds",
        type=int,
        help=f"fewer than 6 decide nothing [{shape.ROUNDS}; with --quick and for factors: 1]",
    )
    p.add_argument(
        "--add", action="store_true", help="add the rounds to those of the last results, if these are of the same machine and build of memfit"
    )
    p.add_argument("--quick", action="store_true", help="small sizes, fewer runs: a test of the bench")
    p.add_argument("--out", help="of the results (docs/papers), or of the recordings (target/papers-recordings)")
    p.add_argument("--work", default=f"{target}/bench-papers", help="programs and their inputs")
    p.add_argument("--memfit", default=f"{target}/release/memfit")
    p.add_argument(
        "--sizes",
        type=lambda s: s.split(","),
        default=["1.7"],
        metavar="A,B,..",
        help=f"factors: of {', '.join(factors.TABLE7)}",
    )
    p.add_argument(
        "--check",
        action="store_true",
        help="pages: only whether those that are there are these; factors: only the published Table 8 from Table 7",
    )
    p.add_argument("--total-timeout", type=float, default=4 * 3600, metavar="S")
    p.add_argument("--report", metavar="FILE.html", help="write the results as a page for a browser, too")
    p.add_argument("--from", dest="source", metavar="RESULT", help="with --report: of this result.json, without a run")
    o = p.parse_args(argv)
    o.out = o.out or (f"{target}/papers-recordings" if o.command == "record" else f"{ROOT}/docs/papers")
    for name in o.only:
        if name not in names:
            p.error(f"no paper {name}: {', '.join(names)}")
    for size in o.sizes:
        if size not in factors.TABLE7:
            p.error(f"no size {size}: {', '.join(factors.TABLE7)}")
    if o.rounds is None:
        o.rounds = 1 if o.quick or o.command == "factors" else shape.ROUNDS
    if o.rounds < 1:
        p.error("--rounds starts at 1")
    if o.source and not o.report:
        p.error("--from is for --report")
    if o.report and o.command == "factors":
        p.error("--report is not for factors")
    return o


def run_cells(ctx, cells, rounds, deadline):
    """Rounds alternate, in an order that rotates; {cell: its runs}, and whether all were made."""
    runs = {c: [] for c in cells}
    cells = [c for c in cells if ctx.has(c.scheme)]
    try:
        for k in range(rounds):
            turn = [c for c in cells if k == 0 or not c.once]
            start = k * 7 % max(1, len(turn))
            for c in turn[start:] + turn[:start]:
                # One may fail by chance, for lack of time; two show that it does not work.
                if len(runs[c]) > 1 and all(r["status"] != "ok" for r in runs[c][-2:]):
                    continue
                if time.monotonic() > deadline:
                    raise Stopped("the time bound")
                r = engine.run(ctx, c)
                runs[c].append(r)
                took = f"{r['measured']:.2f} s" if r["measured"] is not None else r["stderr"][-200:].replace("\n", " ")
                log(f"  {c.workload}, {c.config}: {r['status']}, {took}")
    except Stopped as why:
        log(f"stopped by {why}")
        return runs, False
    return runs, True


def run_paper(ctx, module, rounds, deadline):
    began = time.monotonic()
    try:
        restrained = ctx.become(module.MACHINE)
        cells = module.cells(ctx)
        runs, complete = run_cells(ctx, cells, rounds, deadline)
    finally:
        ctx.leave()
    summaries = engine.Cells({c.key: engine.summarise(c, runs[c]) for c in cells})
    numbers = [of_round(module, runs, k) for k in range(max(1, *map(len, runs.values())))]
    return {
        "title": module.TITLE,
        "source": module.SOURCE,
        "quick": ctx.quick,
        "rounds": rounds,
        "series": 1,
        "restrained": restrained,
        "complete": complete,
        "seconds": time.monotonic() - began,
        "absent": sorted({c.scheme for c in cells if not ctx.has(c.scheme)}),
        "numbers": numbers,
        "cells": list(summaries.values()),
        **judged(module, numbers),
    }


SAME = ("cpu", "cpus", "ram_bytes", "kernel", "build")


def build_of(memfit):
    """Tells builds of one version apart."""
    with open(memfit, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:16]


def added(module, before, part):
    """The rounds of both. The table of runs is that of the longer series, but tells failures of both. `None` if machine
    or build differ."""
    facts = [[of["facts"].get(key) for key in SAME] + [of["quick"], of["restrained"]] for of in (before, part)]
    if facts[0] != facts[1]:
        return None
    numbers = before["numbers"] + part["numbers"]
    shorter, longer = sorted((part, before), key=lambda of: len(of["numbers"]))
    both = {(c["workload"], c["config"]): [c] for c in longer["cells"]}
    for c in shorter["cells"]:
        both.setdefault((c["workload"], c["config"]), []).append(c)
    told = {key: next(c for c in cells if c["status"] == engine.worst([c["status"] for c in cells])) for key, cells in both.items()}
    return {
        **part,
        "rounds": len(numbers),
        # Results of an older bench do not tell theirs.
        "series": before["series"] + part["series"] if before.get("series") else None,
        "seconds": before["seconds"] + part["seconds"],
        "complete": part["complete"] and len(numbers) >= shape.ROUNDS,
        "absent": sorted({*before["absent"], *part["absent"]}),
        "numbers": numbers,
        "cells": [
            {**cells[0], "status": told[key]["status"], "why": told[key]["why"]} for key, cells in both.items()
        ],
        **judged(module, numbers),
    }


def of_round(module, runs, k):
    """The numbers of a round, from its runs alone."""
    return module.derive(engine.Cells({c.key: engine.summarise(c, of[k : k + 1]) for c, of in runs.items()}))


def judged(module, rounds):
    """By the numbers of each round."""
    return {
        "published": module.PUBLISHED,
        "statements": [shape.judge(s, rounds, module.EXPLAINED) for s in module.STATEMENTS],
        "tables": {t.title: shape.compared(t, module.PUBLISHED, shape.medians(rounds)) for t in module.TABLES},
    }


def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except OSError:
        return ""


def load(path):
    try:
        return json.loads(read(path))
    except ValueError:
        return {}


def write(path, text):
    with open(path + ".new", "w") as f:
        f.write(text)
    os.rename(path + ".new", path)


def pages(o, result):
    """{name: text}: a page and a figure for each paper that has a result, and the overview."""
    found = simulated.load(f"{o.out}/simulated.json", PAPERS)
    out = {"README.md": render.overview(PAPERS, result, found)}
    for m in PAPERS:
        part = result["papers"].get(m.NAME)
        if part:
            beside = found.get(m.NAME)
            more = (beside.rounds, beside.recorded) if beside else ()
            drawn = figure.draw(m.FIGURE, m.PUBLISHED, part["numbers"], *more)
            out[f"{m.NAME}.md"] = render.paper_page(m, part, beside, drawn is not None)
            if drawn:
                out[f"{m.NAME}.svg"] = drawn
    return out


def as_text(result):
    return json.dumps(result, indent=1) + "\n"


def save(o, result):
    """The JSON of all papers, and the pages."""
    os.makedirs(o.out, exist_ok=True)
    write(f"{o.out}/result.json", as_text(result))
    for name, text in pages(o, result).items():
        write(f"{o.out}/{name}", text)


def all_papers(ctx, o, deadline):
    path = f"{o.out}/result.json"
    before = load(path)
    kept = before.get("papers", {}) if before.get("schema") == SCHEMA else {}
    result = {"schema": SCHEMA, "kind": "papers", "papers": kept}
    bad = False
    for m in PAPERS:
        if m.NAME not in o.only:
            continue
        log(m.NAME)
        facts = {**host.facts(ctx.work, ctx.memfit, None), "build": build_of(ctx.memfit)}
        try:
            part = {**run_paper(ctx, m, o.rounds, deadline), "facts": facts}
        except (engine.Broken, OSError, subprocess.SubprocessError) as why:
            log(f"  {m.NAME} cannot be run: {why}")
            bad = True
            continue
        bad |= not part["complete"] or any(c["status"] in ("wrong", "failed") for c in part["cells"])
        stopped = not part["complete"]
        if o.add and m.NAME in kept:
            both = added(m, kept[m.NAME], part)
            if not both:
                log(f"  {m.NAME}: the last results are of another machine or build, and are replaced")
            part = both or part
        result["papers"][m.NAME] = part
        save(o, result)
        for s in part["statements"]:
            log(f"  {s['verdict']}: {s['text']}: {s['numbers'] or s['explained']}")
        if stopped:
            break
    print(f"papers: {o.out}/README.md")
    return write_page(o, result) or (1 if bad else 0)


def judge_again(result):
    """With the statements and explanations of today."""
    for m in PAPERS:
        part = result["papers"].get(m.NAME)
        if part:
            part.update(judged(m, part["numbers"]))
    return result


def write_page(o, result):
    """Exit status. The results are there in any case."""
    if not o.report:
        return 0
    try:
        page.make(o.memfit, lambda r: describe(PAPERS, r), result, o.out, o.report)
    except host.Refused as why:
        log(f"no page: {why}")
        return 1
    return 0


def page_of(o):
    """Of a result that is there; 2 when it cannot be."""
    try:
        result = page.load(o.source, ("papers",), SCHEMA)
        page.make(o.memfit, lambda r: describe(PAPERS, judge_again(r)), result, o.source, o.report)
    except host.Refused as why:
        log(f"refused: {why}")
        return 2
    return 0


def pages_again(o):
    result = load(f"{o.out}/result.json")
    if not result.get("papers") or result.get("schema") != SCHEMA:
        log(f"no results of schema {SCHEMA} in {o.out}")
        return 2
    judge_again(result)
    if o.check:
        return differ(o, result)
    save(o, result)
    return write_page(o, result)


def differ(o, result):
    """1 if a page is not what the results and the texts give."""
    wanted = {"result.json": as_text(result), **pages(o, result)}
    others = [name for name, text in wanted.items() if read(f"{o.out}/{name}") != text]
    if not os.path.exists(f"{o.out}/simulated.json"):
        log(f"{o.out}/simulated.json is missing: make papers-sim writes it")
        return 1
    for name in others:
        log(f"{o.out}/{name} is not what the results give: lab/bench/papers.py pages writes it")
    return int(bool(others))


def factor_study(ctx, o, deadline):
    if not ctx.has("tuduce05"):
        log("this memfit has no scheme tuduce05")
        return 2
    result = {
        "schema": 1,
        "kind": "factors",
        "quick": o.quick,
        "times": {},
        "noise": {},
        "shares": {},
        "complete": True,
    }
    for size in o.sizes:
        cells = tuduce.factor_cells(ctx, size)
        runs, complete = run_cells(ctx, cells, o.rounds, deadline)
        times = {c.config: engine.summarise(c, runs[c])["seconds"] for c in cells}
        result["noise"][size] = (
            max((v["max"] - v["min"] for v in times.values() if v), default=None) if o.rounds > 1 else None
        )
        times = result["times"][size] = {k: v["median"] if v else None for k, v in times.items()}
        result["complete"] &= complete
        got = {levels: times[factors.label(levels)] for levels in factors.GRID}
        result["shares"][size] = factors.shares(got) if None not in got.values() else None
    result["facts"] = host.facts(ctx.work, ctx.memfit, None)
    text = render.factors_page(factors, result, result["facts"])
    os.makedirs(o.out, exist_ok=True)
    write(f"{o.out}/factors.json", json.dumps(result, indent=1) + "\n")
    write(f"{o.out}/factors.md", text)
    print(text)
    return 0 if result["complete"] and None not in result["shares"].values() else 1


def main(argv):
    o = parse(argv)
    if o.command == "factors" and o.check:
        lines, good = factors.check()
        print("\n".join(lines))
        print("as printed" if good else "NOT as printed")
        return 0 if good else 1
    o.out = os.path.abspath(o.out)
    try:
        if o.report:
            page.check(o.memfit, o.report)
    except host.Refused as why:
        log(f"refused: {why}")
        return 2
    if o.source:
        return page_of(o)
    if o.command == "pages":
        return pages_again(o)
    if not os.access(o.memfit, os.X_OK):
        log(f"no memfit binary at {o.memfit}: build it, or give --memfit PATH")
        return 2
    deadline = time.monotonic() + o.total_timeout
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, stop)
    ctx = engine.Context(os.path.abspath(o.memfit), os.path.abspath(o.work), o.quick)
    try:
        ctx.build()
        if o.command == "record":
            return record.record_all(ctx, [m for m in PAPERS if m.NAME in o.only], o.out, deadline, log)
        return factor_study(ctx, o, deadline) if o.command == "factors" else all_papers(ctx, o, deadline)
    except Stopped as why:
        log(f"stopped by {why}")
        return 1
