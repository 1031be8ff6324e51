"""Markdown: a page a paper, and one over all."""

from .shape import CANNOT, FAIL, PASS, bounds, compared

MIB = 1 << 20


def number(value, digits=2):
    if value is None:
        return "–"
    low, high = bounds(value)
    return f"{low:.{digits}f}" if low == high else f"{low:g} to {high:g}"


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


def published_and_own(table, published, own):
    """The table, each column twice where anything was published; then signs and order."""
    header, rows = [table.corner], []
    printed = {c.head: any(published.get(c.key.format(r)) is not None for r in table.rows) for c in table.columns}
    for c in table.columns:
        header += [f"{c.head}: paper", "here"] if printed[c.head] else [f"{c.head}: here"]
    for r in table.rows:
        row = [table.labels.get(r, r)]
        for c in table.columns:
            name = c.key.format(r)
            row += [number(published.get(name), c.digits)] if printed[c.head] else []
            row.append(number(own.get(name), c.digits))
        rows.append(row)
    out = [f"### {table.title}", "", f"Published: {table.source}.", "", rows_of(header, rows), ""]
    said = []
    for c in compared(table, published, own):
        parts = []
        if c["signs"] and c["signs"][1]:
            parts.append(f"{c['signs'][0]} of {c['signs'][1]} on the published side of 1")
        if c["order"][1]:
            parts.append(f"{c['order'][0]} of {c['order'][1]} pairs in the published order")
        if parts:
            said.append(f"{c['column']}: {', '.join(parts)}")
    return out + ([f"Signs and order: {'; '.join(said)}.", ""] if said else [])


def statements_table(judged):
    mark = {PASS: "PASS", FAIL: "**FAIL**", CANNOT: "not reproducible"}
    rows = [[s["text"], s["source"], mark[s["verdict"]], s["numbers"] or "–", explanation(s)] for s in judged]
    return rows_of(["statement", "source", "verdict", "numbers here", "explanation"], rows, 5)


def explanation(s):
    if s["verdict"] == PASS:
        return ""
    return s["explained"] or ("not explained" if s["verdict"] == FAIL else "")


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
    return {v: sum(s["verdict"] == v for s in judged) for v in (PASS, FAIL, CANNOT)}


def paper_page(module, part, facts):
    n = counts(part["statements"])
    out = [
        f"# {module.TITLE}: the published comparison and ours",
        "",
        f"{module.SOURCE}.",
        "",
        facts_line(facts),
        "",
        f"Setting. {module.SETTING}" + (f" Machine: {part['restrained']}." if part.get("restrained") else ""),
        "",
        f"{n[PASS]} statements hold, {n[FAIL]} do not, {n[CANNOT]} cannot be shown here.",
        "",
    ]
    if part["quick"]:
        out += ["**Small sizes (`--quick`): a test of the bench, not a measurement.**", ""]
    if not part["complete"]:
        out += ["**Incomplete: the bench was stopped.**", ""]
    if part["absent"]:
        out += [f"This memfit has no scheme {', '.join(part['absent'])}: their runs are missing.", ""]
    out += ["## What must come out in shape", "", statements_table(part["statements"]), "", "## Tables", ""]
    for table in module.TABLES:
        out += published_and_own(table, module.PUBLISHED, part["numbers"])
    out += ["## What stands for what", "", rows_of(["in the paper", "here", "differs"], module.WORKLOADS, 3), ""]
    out += ["## Deviations", "", *(f"- {d}" for d in module.DEVIATIONS), ""]
    out += [
        "## Runs",
        "",
        (
            f"Medians of up to {part['rounds']} rounds [least..greatest]; seconds of the phase that counts. Every"
            " program checks its data; none of the runs counted above had a wrong page."
        ),
        "",
        runs_table(part["cells"]),
        "",
    ]
    return "\n".join(out)


def facts_line(facts):
    disk = facts["disk"]
    return (
        f"{facts['cpu']}, {facts['cpus']} CPUs{', virtual' if facts['virtualised'] else ''}, Linux {facts['kernel']},"
        f" {disk['device']} ({disk['filesystem']}); {facts['memfit']}; load at the start"
        f" {facts['loadavg_at_start'].split()[0]}."
    )


def overview(modules, result):
    out = [
        "# The papers' comparisons, run again",
        "",
        (
            "Each published comparison in the live engine: today's equivalents of its workloads at a scale that takes"
            " minutes, under the scheme and under plain swap (`swap`: the same engine without compression), in the same"
            " budget. Absolute times belong to the machines; signs and order are compared."
        ),
        "",
        "`make papers` makes these pages again; `lab/bench/papers.py --help`.",
        "",
    ]
    rows, failed = [], []
    for m in modules:
        part = result["papers"].get(m.NAME)
        if not part:
            continue
        n = counts(part["statements"])
        rows.append([f"[{m.TITLE}]({m.NAME}.md)", m.SOURCE, n[PASS], n[FAIL], n[CANNOT], f"{part['seconds']:.0f}"])
        failed += [(m, s) for s in part["statements"] if s["verdict"] == FAIL]
    out += [rows_of(["scheme", "paper", "hold", "do not", "not reproducible", "seconds"], rows, 2), ""]
    if failed:
        out += [
            "What does not hold:",
            "",
            rows_of(
                ["paper", "statement", "numbers here", "explanation"],
                [[m.NAME, s["text"], s["numbers"], explanation(s)] for m, s in failed],
                4,
            ),
            "",
        ]
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
