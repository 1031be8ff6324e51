"""Markdown: a page a paper, and one over all."""

import os
import textwrap

from .shape import FAILS, VERDICTS, bounds, compared, extent, medians, middle

MIB = 1 << 20
# Columns of a document.
COLUMNS = 120
METHOD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "method.md")
JUDGED = (
    "Numbers are medians over the rounds [least..greatest]. In each round every configuration runs once. A comparison of two"
    " numbers is decided if the rounds agree: all of 6 to 8, all but one of 9 to 11. Chance alone, with even odds, brings that"
    " about in less than 5 of 100 cases, for each comparison by itself: of many, some are decided by chance. A statement holds if all of its comparisons do. It does not hold if one is decided against"
    " it. Else it is undecided."
)

SIMULATED = (
    "Numbers are medians over the seeds, with the least and the greatest where they differ. A statement holds, or does not, with"
    " every seed; else it is undecided."
)
SOURCES = (
    "Live: measured. Simulated: programs made from seeds, on the paper's machine. Recorded: the live programs, recorded and"
    " simulated on the paper's machine. Medians [least..greatest]."
)


def number(value, digits=2):
    if value is None:
        return "–"
    low, high = bounds(value)
    return f"{low:.{digits}f}" if low == high else f"{low:g} to {high:g}"


def filled(text, first="", rest=""):
    """A paragraph, or an item of a list, in lines of a document."""
    return textwrap.fill(
        text, COLUMNS, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def items(texts):
    return [filled(text, "- ", "  ") for text in texts]


def measured(rounds, name, digits):
    """The median of a number, and its least and greatest value."""
    got = extent(rounds, name)
    if got is None:
        return "–"
    low, high = got
    text = number(middle(medians([{name: r.get(name)} for r in rounds])[name]), digits)
    return text if low == high else f"{text} [{low:.{digits}f}..{high:.{digits}f}]"


def rows_of(header, rows, left=1):
    """A Markdown table; the first `left` columns are texts."""
    line = lambda cells: "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"
    return "\n".join(
        [
            line(header),
            "|" + "|".join("---" if i < left else "---:" for i in range(len(header))) + "|",
            *map(line, rows),
        ]
    )


def compared_table(table, published, rounds, simulated):
    """The table: of each column what was published, measured live, simulated, and simulated from recordings, as far as there
    is any of it; then signs and order."""
    theirs = [published]
    sources = {"paper": theirs, "live": rounds}
    if simulated:
        sources |= {"simulated": simulated.rounds, "recorded": simulated.recorded}
    header, columns = [table.corner], []
    for c in table.columns:
        for source, of in sources.items():
            if any(extent(of, c.key.format(row)) for row in table.rows):
                header.append(f"{c.head}: {source}")
                columns.append((c, of))
    cell = lambda of, name, digits: number(published.get(name), digits) if of is theirs else measured(of, name, digits)
    rows = [
        [table.labels.get(row, row), *(cell(of, c.key.format(row), c.digits) for c, of in columns)] for row in table.rows
    ]
    out = [f"### {table.title}", "", f"Published: {table.source}.", "", rows_of(header, rows), ""]
    said = []
    for source in ("live", "simulated"):
        for c in compared(table, published, medians(sources.get(source, []))):
            parts = []
            if c["signs"] and c["signs"][1]:
                parts.append(f"{c['signs'][0]} of {c['signs'][1]} on the published side of 1")
            if c["order"][1]:
                parts.append(f"{c['order'][0]} of {c['order'][1]} pairs in the published order")
            if parts:
                said.append(f"{c['column']}, {source}: {', '.join(parts)}")
    return out + ([filled(f"Signs and order: {'; '.join(said)}."), ""] if said else [])


def statements_table(judged):
    rows = [
        [s["text"], s["source"], mark(s["verdict"]), s["agree"] or "–", s["numbers"] or "–", explanation(s)] for s in judged
    ]
    columns = ["statement", "source", "verdict", "rounds in which it holds", "numbers here", "why"]
    return rows_of(columns, rows, 6)


def mark(verdict):
    return f"**{verdict}**" if verdict == FAILS else verdict


def explanation(s):
    return s["explained"] or ("not explained" if s["verdict"] == FAILS else "")


def of_seconds(spread):
    if not spread:
        return "–"
    text = f"{spread['median']:.2f}"
    return text if spread["min"] == spread["max"] else f"{text} [{spread['min']:.2f}..{spread['max']:.2f}]"


def settings(cell):
    return " ".join(cell["overrides"]).replace("sizing.", "").replace("replacement.", "").replace("pool.", "")


def runs_table(cells):
    rows = []
    for c in cells:
        mib = lambda key: "–" if c.get(key) is None else f"{c[key] / MIB:.0f}"
        rows.append(
            [
                c["workload"],
                c["config"],
                c["scheme"],
                settings(c),
                of_seconds(c["seconds"]),
                number(c["ratio"], 3),
                number(c["faults"], 0),
                number(c["faults_swap"], 0),
                mib("read_bytes"),
                mib("write_bytes"),
                mib("peak_bytes"),
                "" if c["status"] == "ok" else f"{c['status']}: {c['why'][-160:]}".replace("\n", " "),
            ]
        )
    return rows_of(
        [
            "workload",
            "configuration",
            "scheme",
            "settings",
            "seconds",
            "ratio",
            "faults",
            "from swap",
            "read MiB",
            "written MiB",
            "peak MiB",
            "remark",
        ],
        rows,
        4,
    )


def counts(judged):
    return {v: sum(s["verdict"] == v for s in judged) for v in VERDICTS}


def told(n):
    return f"{sum(n.values())} statements; {', '.join(f'{verdict}: {count}' for verdict, count in n.items() if count)}."


def paper_page(module, part, simulated=None, has_figure=False):
    """`part` is the live result of the paper, `simulated` what its simulations gave."""
    out = [f"# {module.TITLE}", "", filled(f"{module.SOURCE}. Rules: [schemes](../schemes.md)."), ""]
    if has_figure:
        out += [f"![{module.FIGURE.title}]({module.NAME}.svg)", ""]
    out += [filled(module.DISCUSSION), "", *live(module, part)]
    if simulated:
        out += simulation(simulated)
    out += ["## Tables", ""]
    if simulated:
        out += [filled(SOURCES), ""]
    for table in module.TABLES:
        out += compared_table(table, module.PUBLISHED, part["numbers"], simulated)
    out += ["## What stands for what", "", rows_of(["in the paper", "live", "differs"], module.WORKLOADS, 3), ""]
    out += ["## Deviations of the live runs", "", *items(module.DEVIATIONS), ""]
    out += [
        "## Live runs",
        "",
        filled(
            f"Medians of up to {max(c['rounds'] for c in part['cells'])} rounds [least..greatest]; seconds of the phase that counts. Every program"
            " checks its data; none of the runs counted above had a wrong page."
        ),
        "",
        runs_table(part["cells"]),
        "",
    ]
    return "\n".join(out)


def series(part):
    """How many series the rounds come from: whether there is another one was decided with the results of the last one at hand."""
    n = part.get("series")
    if n == 1:
        return "All rounds come from one series."
    of = f"The rounds come from {n} series." if n else "It was not recorded how many series the rounds come from."
    return f"{of} Rounds that are added after a look at the results (`--add`) raise this chance above 5 of 100."


def live(module, part):
    out = ["## Live", "", filled(facts_line(part["facts"])), ""]
    out += [filled(f"Setting. {module.SETTING}" + (f" Machine: {part['restrained']}." if part.get("restrained") else "")), ""]
    out += [filled(f"{told(counts(part['statements']))} {JUDGED} {series(part)}"), ""]
    if part["quick"]:
        out += ["**Small sizes (`--quick`): a test of the bench, not a measurement.**", ""]
    if not part["complete"]:
        out += ["**Incomplete: the bench was stopped.**", ""]
    if part["absent"]:
        out += [f"This memfit has no scheme {', '.join(part['absent'])}: their runs are missing.", ""]
    return [*out, statements_table(part["statements"]), ""]


def simulation(simulated):
    part = simulated.part
    rows = [
        [s["what"], s["source"], s["published"], mark(s["verdict"]), s["here"], s["why"], s["recorded"]]
        for s in part["statements"]
    ]
    header = ["statement", "source", "published", "verdict", "numbers here", "why", "recorded"]
    out = ["## Simulated", "", filled(f"Setting. {part['setting']}"), "", *items(part["differs"]), ""]
    out += [*items(part["recorded"]["notes"]), ""]
    return [*out, filled(f"{told(simulated.counts())} {SIMULATED}"), "", rows_of(header, rows, 7), ""]


def facts_line(facts):
    disk = facts["disk"]
    return (
        f"{facts['cpu']}, {facts['cpus']} CPUs{', virtual' if facts['virtualised'] else ''}, Linux {facts['kernel']},"
        f" {disk['device']} ({disk['filesystem']}); {facts['memfit']}; load at the start"
        f" {facts['loadavg_at_start'].split()[0]}."
    )


def overview(modules, result, simulated):
    with open(METHOD, encoding="utf-8") as f:
        out = [f.read()]
    rows, not_so = [], []
    for m in modules:
        part = result["papers"].get(m.NAME)
        if not part:
            continue
        link = f"[{m.TITLE}]({m.NAME}.md)"
        ways = [("live", counts(part["statements"]), f"{len(part['numbers'])} rounds, {part['seconds'] / 60:.0f} minutes")]
        if m.NAME in simulated:
            ways.append(("simulated", simulated[m.NAME].counts(), f"{len(simulated[m.NAME].rounds)} seeds"))
        rows += [[link, way, *n.values(), how] for way, n, how in ways]
        not_so += [[m.NAME, "live", s["text"], s["source"]] for s in part["statements"] if s["verdict"] == FAILS]
        if m.NAME in simulated:
            failed = (s for s in simulated[m.NAME].part["statements"] if s["verdict"] == FAILS)
            not_so += [[m.NAME, "simulated", s["what"], s["source"]] for s in failed]
    out += ["## Verdicts", "", rows_of(["scheme", "way", *VERDICTS, "runs"], rows, 2), ""]
    if not_so:
        out += ["## What does not hold", "", "The pages of the papers have the numbers and the reasons.", ""]
        out += [rows_of(["paper", "way", "statement", "source"], not_so, 4), ""]
    return "\n".join(out)


def factors_page(factors, result, facts):
    out = [
        "# Which factor the times of qsim depend on",
        "",
        (
            "The 2^3 grid of Tuduce and Gross (Tables 6 and 7) on the live engine, and the share of the variation that"
            f" each effect explains. Levels: CF {factors.HERE['CF']}, block {factors.HERE['block']} bytes, zone"
            f" {factors.HERE['zone']} KiB (theirs: 2 and 8 MB, of which a sixteenth is less than the smallest zone)."
        ),
        "",
        facts_line(facts),
        "",
    ]
    sizes = list(result["times"])
    header = [
        "CF",
        "block, B",
        "zone, KiB",
        *(f"{s} GB: here, s" for s in sizes),
        *(f"{s} GB: paper, s" for s in sizes),
    ]
    rows = []
    for levels in factors.GRID:
        label = factors.label(levels)
        rows.append(
            [
                *(factors.HERE[f][l > 0] for f, l in zip(factors.FACTORS, levels)),
                *(number(result["times"][s].get(label)) for s in sizes),
                *(number(factors.printed(s)[levels]) for s in sizes),
            ]
        )
    out += ["## Times", "", rows_of(header, rows, 3), "", "## Share of variation, %", ""]
    rows = [
        [
            factors.effect_name(e),
            *(
                x
                for s in sizes
                for x in (number(factors.TABLE8[s][i]), number(result["shares"][s][i]) if result["shares"][s] else "–")
            ),
        ]
        for i, e in enumerate(factors.EFFECTS)
    ]
    out += [rows_of(["effect", *(f"{s} GB: {x}" for s in sizes for x in ("paper", "here"))], rows), ""]
    out += [*(f"{s} GB: {scatter(result['times'][s].values(), result['noise'][s])}" for s in sizes), ""]
    return "\n".join(out)


def scatter(times, noise):
    """Shares always add up to 100 %, also those of noise: how far the times differ, and how far rounds of the same setting do."""
    times = [t for t in times if t is not None]
    if not times:
        return "no times."
    width = max(times) - min(times)
    text = f"the settings differ by {width:.2f} s"
    if noise is None:
        return f"{text}; one round only, so that nothing tells them from noise."
    text += f", rounds of the same setting by up to {noise:.2f} s"
    return f"{text}." if width > 2 * noise else f"{text}: **the shares are those of noise.**"
