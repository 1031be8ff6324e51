"""What the HTML page of the papers shows; `page` makes it."""

import page

from .render import counts, explanation, settings
from .shape import HOLDS, VERDICTS, bounds, chain_text, medians, middle

# Published and own values that are so many times apart are drawn on a logarithmic axis.
FAR = 20
CHECKED = "Medians over the rounds, of the phase that counts. Every program checks its data."


def describe(modules, result):
    parts = [(m, result["papers"][m.NAME]) for m in modules if m.NAME in result["papers"]]
    if not parts:
        raise ValueError("it has no papers")
    sums = [counts(part["statements"]) for _, part in parts]
    n = {verdict: sum(c[verdict] for c in sums) for verdict in VERDICTS}
    others = ", ".join(f"{verdict}: {n[verdict]}" for verdict in VERDICTS if verdict != HOLDS and n[verdict])
    return {
        "title": "The papers' comparisons, run again",
        "says": (
            f"Of {sum(n.values())} published statements {n[HOLDS]} hold in the live engine ({others}). Signs and order are"
            " compared: absolute times belong to the machines."
        ),
        "facts": page.facts_of(parts[0][1]["facts"]),
        "sections": [
            overview(parts),
            *(of_paper(m, part) for m, part in parts),
            page.section("Runs", [CHECKED], [runs(m, part["cells"]) for m, part in parts]),
        ],
    }


def overview(parts):
    rows = []
    for m, part in parts:
        n = counts(part["statements"])
        rows.append([m.TITLE, m.SOURCE, *n.values(), part["rounds"], part["seconds"]])
    columns = ["Scheme", "Paper", *VERDICTS, "Rounds", ("Took", "seconds")]
    return page.section("Overview", tables=[page.table("Statements of the papers", "", columns, rows)])


def of_paper(module, part):
    facts = part["facts"]
    where = f"Measured with {facts['memfit']} on {facts['cpu']}, Linux {facts['kernel']}."
    text = [f"{module.SOURCE}.", module.SETTING, where]
    text += [f"Machine: {part['restrained']}."] if part["restrained"] else []
    text += ["Small sizes (--quick): a test of the bench, not a measurement."] if part["quick"] else []
    text += [] if part["complete"] else ["Incomplete: the bench was stopped."]
    text += [f"This memfit has no scheme {', '.join(part['absent'])}: their runs are missing."] if part["absent"] else []
    figures = [drawn for t in module.TABLES for drawn in figures_of(t, module.PUBLISHED, medians(part["numbers"]))]
    return page.section(module.TITLE, text, [statements(module, part)], figures)


def published(module, name):
    """What the paper prints of the terms of a statement."""
    chain = next((s.chain for s in module.STATEMENTS if s.name == name and not s.cannot), ())
    numbers = {name: value for name, value in module.PUBLISHED.items() if value is not None}
    names = [n for term in chain[::2] for n in (term if isinstance(term, (list, tuple)) else (term,))]
    printed = any(isinstance(n, str) and n.rpartition(" * ")[2] in numbers for n in names)
    return chain_text(chain, [numbers]) if printed else None


def statements(module, part):
    rows = [
        [
            s["text"],
            s["source"],
            s["verdict"],
            s["agree"] or None,
            published(module, s["name"]),
            s["numbers"] or None,
            explanation(s),
        ]
        for s in part["statements"]
    ]
    columns = ["Statement", "Where", "Verdict", "Rounds in which it holds", "Published", "Here", "Why"]
    return page.table("What the paper says", "", columns, rows)


def number(value):
    return None if value is None else middle(value)


def figures_of(table, printed, own):
    """One for each column of which something was published, the paper's values dashed."""
    for c in table.columns:
        names = [c.key.format(row) for row in table.rows]
        theirs, ours = ([number(values.get(n)) for n in names] for values in (printed, own))
        if not any(v is not None for v in theirs) or not any(v is not None for v in ours):
            continue
        there = [v for v in theirs + ours if v]
        far = min(there, default=0) > 0 and max(there) / min(there) > FAR
        ranges = any(len(set(bounds(printed[n]))) > 1 for n in names if printed.get(n) is not None)
        says = f"Published: {table.source}." + (" Ranges are drawn by their middle." if ranges else "")
        drawn = [page.series("published", theirs, 1, dashed=True), page.series("here", ours, 1)]
        labels = [table.labels.get(row, row) for row in table.rows]
        levels = [(c.pivot, "")] if c.pivot is not None else []
        y = page.axis(c.head, log=far)
        yield page.figure(f"{table.title}: {c.head}", says, "bars", table.corner, y, labels, drawn, levels)


def runs(module, cells):
    columns = [
        "Workload",
        "Configuration",
        "Scheme and settings",
        ("Median", "seconds"),
        ("Least", "seconds"),
        ("Greatest", "seconds"),
        "Compressed / original",
        "Faults",
        "From swap",
        ("Read", "bytes"),
        ("Written", "bytes"),
        ("Peak", "bytes"),
        "Remark",
    ]
    rows = []
    for c in cells:
        took = c["seconds"] or {}
        rows.append(
            [
                c["workload"],
                c["config"],
                f"{c['scheme']} {settings(c)}".strip(),
                *(took.get(k) for k in ("median", "min", "max")),
                *(c[k] for k in ("ratio", "faults", "faults_swap", "read_bytes", "write_bytes", "peak_bytes")),
                "" if c["status"] == "ok" else f"{c['status']}: {c['why'][-160:]}",
            ]
        )
    return page.table(module.TITLE, "", columns, rows)
