"""Han et al. 2018: zRAM and flash side by side, routed by who reclaims."""

from . import published
from .programs import turns
from .apps import spec
from .engine import MIB, Broken, Cell, Machine
from .figure import Figure
from .shape import Column, Statement, Table

NAME = "han"
TITLE = "Hybrid swapping with per-process reclaim"
SOURCE = 'Han, Kim, Lee, Lee, Kim, "A Hybrid Swapping Scheme Based On Per-Process Reclaim ...", IEEE Access 2018'
SETTING = (
    "15 real programs that stay alive, interpreters and servers with 10 to 30 MiB of records each, in a budget of what they have"
    " together, divided by 1.3: as far as the paper's hybrid extends RAM. 6 turns, newly shuffled, of which the first starts the"
    " programs and is not counted. The compressed space of zRAM, zSWAP and hybrid is an eighth of the budget, swap in storage a"
    " quarter; hybrid gets as many slots more as its zRAM holds pages, since memfit gives a slot to these as well. When nothing"
    " takes a page any more, the largest program in the background is killed (--on-full kill). Its next trigger starts it anew, and"
    " that counts. The pager is told when a program leaves the foreground and when it is triggered again, as memfit bg -w and memfit"
    " fg do. Only with hybrid a program in the background leaves as a whole (rules 4 to 11; reclaim.per_process). O(t) of the paper's"
    " equations is that of 16 programs in C, 67 MiB of data and about half a MiB each for the process, in 56 MiB, of which none is"
    " killed."
)
MACHINE = Machine()
# The budget of the programs in C, and what is compressed at most.
BUDGET = 56 * MIB
SPACE = ("sizing=fixed", "sizing.pool_permille=125")
ALONE = "reclaim.per_process=0"
EXTENDS = 1.3
FEWEST = 10
PROGRAMS = tuple(program.name for program in turns.programs())
# KiB of anonymous data by category.
GAME, MEDIA, UTILITY, BROWSER = 6144, 3584, 2304, 4096
# KiB, and the name that the paper prints.
APPS = {
    "ClashRoyale": (GAME, "Clash Royale"),
    "Lineage2": (GAME, "Lineage 2 Revolution"),
    "Asphalt8": (GAME, "Asphalt 8"),
    "Raven": (GAME, "Raven"),
    "Anypang3": (GAME, "Anypang3"),
    "FIFA4M": (GAME, "FIFA Online 4M"),
    "YouTube": (MEDIA, "YouTube"),
    "Camera": (MEDIA, "Camera"),
    "Gallery": (MEDIA, "Gallery"),
    "Music": (MEDIA, "Music"),
    "PlayStore": (UTILITY, "Play Store"),
    "Map": (UTILITY, "Google Map"),
    "Phone": (UTILITY, "Phone"),
    "Settings": (UTILITY, "Settings"),
    "Chrome": (BROWSER, "Chrome"),
    "Naver": (BROWSER, "Naver"),
}
# With kills: scheme, overrides, and options by the size of swap that is a quarter of the budget.
KILLED = {
    "zram": ("zram", (*SPACE, ALONE), lambda quarter: ("--swap", "none")),
    "zswap": ("zswap-zbud", (*SPACE, ALONE), lambda quarter: ("--swap-size", f"{quarter}K")),
    "hybrid": ("hybrid18", SPACE, lambda quarter: ("--swap-size", f"{2 * quarter}K")),
    "memfit": ("memfit", (), lambda quarter: ("--swap-size", f"{quarter}K")),
}
# Without.
CONFIGS = {
    "zram-free": ("zram", ()),
    "zswap": ("zswap-zbud", SPACE),
    "hybrid": ("hybrid18", SPACE),
    "swap": ("swap", ()),
}
# By the names of the simulations those of the runs without kills.
OF_COST = {"cost(Stylo zram)": "cost(zram-free)", "cost(Stylo storage)": "cost(swap)"}
RATED = 9 << 40  # bytes that the paper's storage can take


def cells(ctx):
    return [*with_kills(ctx), *without_kills(ctx)]


def with_kills(ctx):
    here = [program.name for program in turns.present()]
    if len(here) < FEWEST:
        missing = ", ".join(sorted(set(PROGRAMS) - set(here)))
        raise Broken(f"{len(here)} of the {len(PROGRAMS)} programs are here, at least {FEWEST} are needed; missing: {missing}")
    command = lambda count: (
        turns.PYTHON, turns.__file__, str(count), "100" if ctx.quick else "1000", ctx.work, ",".join(here)
    )  # fmt: skip
    # In KiB, whole MiB.
    budget = int(ctx.natural(command(2)) / EXTENDS / MIB) * 1024
    return [
        Cell(
            "programs", config, command(3 if ctx.quick else 6), budget * 1024, scheme, overrides,
            once=config == "memfit", timeout=150, options=("--on-full", "kill", *swap(budget // 4)),
        )
        for config, (scheme, overrides, swap) in KILLED.items()
    ]  # fmt: skip


def without_kills(ctx):
    path = spec(ctx, "han", [(name, kib, "phone", 512, 512, 0, 400, 0) for name, (kib, _) in APPS.items()])
    command = ctx.program("apps", 3 if ctx.quick else 8, "shuffle", path)
    told = {"hybrid": ("told",)}
    return [
        Cell("turns", config, (*command, *told.get(config, ())), BUDGET, scheme, overrides, timeout=90)
        for config, (scheme, overrides) in CONFIGS.items()
    ]


def page_costs(cells, workload, config):
    """O(t) of equations 12, 14 and 16 with the paper's costs, seconds; and pages in and out of each space."""
    names = ("faults_file", "read_bytes", "write_bytes", "faults_pool", "compressed")
    got = [cells.value(workload, config, k) for k in names]
    if None in got[1:]:
        return None
    # Of storage pages, with those that are read along.
    fi, si, so, zi, zo = got[0] or 0, got[1] / 4096, got[2] / 4096, got[3], got[4]
    cached = config == "zswap"
    read, write = 0.1953 + 0.0781 * cached, 0.3906 + 0.0390 * cached
    return {
        "cost": (0.1953 * fi + read * si + write * so + 0.0390 * zi + 0.0781 * zo) / 1000,
        "in": si + zi,
        "out": so + zo,
        "si": si,
        "so": so,
    }


def derive(cells):
    n = {f"cost({config})": (page_costs(cells, "turns", config) or {}).get("cost") for config in CONFIGS}
    for config in KILLED:
        value = lambda key: cells.value("programs", config, key)
        entry, entries = value("entry"), value("entries") or {}
        n[f"entry({config} average)"] = entry * 1000 if entry is not None else None
        for name in (*PROGRAMS, *APPS):
            n[f"entry({config} {name})"] = entries[name] * 1000 if name in entries else None
        costs = page_costs(cells, "programs", config) or {}
        for key in ("in", "out", "si", "so"):
            n[f"{key}({config})"] = costs.get(key)
        written, wall, logical = value("write_bytes"), value("wall"), value("sampled_logical_bytes")
        n[f"written({config})"] = written / MIB if written is not None else None
        n[f"days({config})"] = RATED / (written / wall * 86400) if written and wall else None
        n[f"killed({config})"] = value("killed")
        budget = (cells.get(("programs", config)) or {}).get("budget_bytes")
        n[f"extended({config})"] = logical / budget if logical and budget else None
    return {**n, **faster(n, PROGRAMS)}


def own_name(name):
    """Our entry times and pages are those of the phone Stylo 4, what is written that of the G7."""
    for printed, own in ((printed, own) for own, (_, printed) in APPS.items()):
        name = name.replace(f" {printed})", f" {own})")
    if name.startswith(("written(G7 ", "days(G7 ")):
        return name.replace("G7 ", "")
    if name in OF_COST:
        return OF_COST[name]
    if name.startswith("to storage(Stylo "):
        return name.replace("to storage(Stylo ", "so(")
    if name.startswith(("entry(Stylo ", "in(Stylo ", "out(Stylo ", "cost(Stylo ", "extended(Stylo ", "kills(Stylo ")):
        name = name.replace("Stylo ", "").replace("kills(", "killed(")
        return name.replace(")", " average)") if name.startswith("entry(") and " " not in name else name
    return None


def own(numbers):
    """Numbers of the paper's names and units by our names, in our units: GB written in MB."""
    numbers = published.renamed(numbers, own_name)
    numbers = {name: value * 1024 if name.startswith("written(") else value for name, value in numbers.items()}
    return {**numbers, **faster(numbers, APPS)}


def faster(numbers, names):
    """Of how large a part of the programs the entry is faster with hybrid than with another scheme."""
    out = {}
    for other in ("zram", "zswap"):
        pairs = [(numbers.get(f"entry({other} {name})"), numbers.get(f"entry(hybrid {name})")) for name in names]
        marks = [hybrid < it for it, hybrid in pairs if it is not None and hybrid is not None]
        out[f"faster(hybrid {other})"] = sum(marks) / len(marks) if marks else None
    return out


PUBLISHED = own(published.load("han"))
TABLES = (
    Table(
        "Logical memory / RAM, and kills (published: Stylo 4)",
        "Table 4",
        "scheme",
        tuple(KILLED),
        (Column("logical memory", "extended({})"), Column("kills", "killed({})", 0)),
    ),
    Table(
        "Mean entry time, ms (live: real programs; published and simulated: the applications of Stylo 4)",
        "Table 5",
        "program",
        ("average", *PROGRAMS, *APPS),
        tuple(Column(c, f"entry({c} {{}})", 1) for c in KILLED),
    ),
    Table(
        "Pages swapped, bytes written (published: in 48 h), days until 9 TB are written at this pace (a phone's name: published and simulated)",
        "section 4; the rated endurance of its storage",
        "scheme",
        tuple(KILLED),
        (
            Column("pages in, Stylo 4", "in({})", 0),
            Column("pages out, Stylo 4", "out({})", 0),
            Column("of them from storage", "si({})", 0),
            Column("to storage, Stylo 4", "so({})", 0),
            Column("written, MiB, G7", "written({})", 1),
            Column("days, G7", "days({})", 1),
        ),
    ),
    Table(
        "Cost of page operations by the paper's equations (live: the programs in C, without kills; simulated: Stylo 4)",
        "equations 12, 14, 16",
        "scheme",
        tuple(CONFIGS),
        (Column("O(t), s", "cost({})"),),
        {"zram-free": "zram alone (live: with a swap tier)", "swap": "storage alone"},
    ),
)
SIZES = (
    "It follows from the sizes of the spaces and of the load: by equations 11, 13 and 15 hybrid's can hold 1.3 of RAM, the others"
    " less, and the programs have so much."
)
STATEMENTS = (
    Statement(
        "memory",
        "hybrid has the largest logical memory (1.29 of RAM against 1.10)",
        "Table 4",
        (["extended(zram)", "extended(zswap)"], "<", "extended(hybrid)"),
        put_in=SIZES,
    ),
    Statement(
        "kills",
        "a process is swapped out whole instead of being killed: fewer are killed",
        "rules 4 to 9",
        ("killed(hybrid)", "<", ["killed(zram)", "killed(zswap)"]),
        put_in=SIZES,
    ),
    Statement(
        "fastest",
        "hybrid is fastest on average",
        "Tables 5 to 7",
        ("entry(hybrid average)", "<", ["entry(zram average)", "entry(zswap average)"]),
    ),
    Statement(
        "slowest",
        "zSWAP is slowest on average",
        "Tables 5 to 7",
        (["entry(zram average)", "entry(hybrid average)"], "<", "entry(zswap average)"),
    ),
    Statement(
        "most", "hybrid is faster than zRAM for three of four programs", "Table 5", (0.75, "<=", "faster(hybrid zram)")
    ),
    Statement("most-zswap", "and than zSWAP", "Table 5", (0.75, "<=", "faster(hybrid zswap)")),
    Statement("pages", "zSWAP swaps at least 3 times as many pages", "section 4", ("3 * in(hybrid)", "<", "in(zswap)")),
    Statement(
        "cost",
        "the cost of page operations O(t): zRAM alone < hybrid < storage alone",
        "Eq. 1 to 16",
        ("cost(zram-free)", "<", "cost(hybrid)", "<", "cost(swap)"),
    ),
    Statement("writes", "hybrid writes less to storage", "section 4", ("written(hybrid)", "<", "written(zswap)")),
)
FIGURE = Figure(
    "Han et al. 2018, first phone: hybrid beside zRAM and zSWAP",
    "quotient; above 1 hybrid is better",
    (
        ("entry time, zRAM / hybrid", "entry(zram average)", "entry(hybrid average)"),
        ("entry time, zSWAP / hybrid", "entry(zswap average)", "entry(hybrid average)"),
        ("pages in, zSWAP / hybrid", "in(zswap)", "in(hybrid)"),
        ("pages out, zSWAP / hybrid", "out(zswap)", "out(hybrid)"),
        ("bytes written, zSWAP / hybrid", "written(zswap)", "written(hybrid)"),
    ),
)
DISCUSSION = (
    "The paper's gain in entry time comes from applications that stay alive. Live, with real programs of which the largest is killed"
    " when memory is short, no program is killed under hybrid. By the medians programs are then entered faster on average than under"
    " zRAM, and zSWAP is slowest, as printed; but the rounds do not agree. How many programs zSWAP kills differs from round to round."
    " Simulated, the gain comes out for the first phone, with one number fitted to the paper's zSWAP and with the killer's threshold"
    " assumed: zSWAP kills there before it writes anything to storage. That hybrid also moves several times fewer pages, and writes"
    " less, comes out neither live nor simulated: what stays alive is swapped out and comes back each time. Live, programs are swapped"
    " out as a whole for that; simulated, on the first phone, two at most are, and background reclaim takes the pages of the others. With recordings of runs in which nothing is killed, simulated on the paper's phone, hybrid"
    " moves about a fifth fewer pages than zSWAP. memfit's own scheme needed half of hybrid's time in one live run: its pool may"
    " grow, so that nothing is killed."
)
WORKLOADS = (
    (
        "16 applications that are killed when memory is short",
        (
            "15 real programs, each with records of 1152 bytes that compress to about a half: objects and arrays of Python (numpy),"
            " node, Java, PHP, Ruby, Lua, R, Lisp (sbcl), OCaml, gawk, Tcl and Perl, and the servers' data of Redis and SQLite; a"
            " trigger touches two fifths of the blocks of 32 records, the same each time, then a tenth of the others; all is compared"
            " at the end"
        ),
        (
            "the applications of a phone are not to be had; a start takes 0.1 to 0.7 s, a trigger with all in memory 5 ms on average,"
            " and a program is in the foreground for 0.1 s"
        ),
    ),
    (
        "the same without kills",
        (
            "C, one process each, that keep 2 to 6 MiB of anonymous data (C about 2) and map a file of 512 KiB; a"
            " trigger touches 40 % of it, which is the same each time, then a tenth of the rest; every page is checked"
        ),
        (
            "the applications of a phone are not to be had; names are kept "
            "so that rows can be told apart: what differs is the category's size"
        ),
    ),
)
DEVIATIONS = (
    "6 turns for 16; 8 of the programs in C.",
    "Only the phone with 16 applications; the 60 of the two larger ones, and 48 hours, would take too long.",
    (
        "A phone kills before memory is used up. memfit kills when nothing takes a page any more and the programs are 5 % over the"
        " budget; page faults wait meanwhile, which an entry under zRAM and zSWAP pays for."
    ),
    "zSWAP and storage alone read 8 pages around a fault from storage, as their presets say, and hybrid one.",
    "The pages of the files are dropped and read by the kernel without being seen, unless the scheme offers them.",
)
KILLED_ANEW = (
    "A program that was killed starts anew, in 0.1 to 0.7 s. In all six turns zRAM kills {killed(zram):0} times, zSWAP"
    " {killed(zswap):0} times, hybrid {killed(hybrid):0} times. Hybrid pays in page-ins instead: {in(hybrid):0}, of which"
    " {si(hybrid):0} come from storage."
)
FEW_KILLED = (
    "Many programs hardly lose under zRAM and zSWAP: they are not killed there, or rarely, and do not leave as a whole. The mean"
    " gains by those that are, which take 0.2 to 0.5 s (node, R and java in the table)."
)
WHOLE = (
    "With hybrid a program leaves as a whole when memory is short, also the two fifths of it that each trigger touches, and its"
    " working set comes back when it is triggered: {in(hybrid):0} pages in, {in(zswap):0} with zSWAP. The pool has no room for whole"
    " programs, so {si(hybrid):0} of them come from storage. A program that starts anew swaps nothing in."
)
MORE = (
    "In some rounds the programs under zSWAP have more than its spaces hold by the paper's equations, and fewer are killed. The reason"
    " was not looked for."
)
EXPLAINED = {
    "memory": MORE,
    "kills": MORE,
    "fastest": KILLED_ANEW,
    "slowest": "With zSWAP programs are killed as well, {killed(zswap):0} times, and {si(zswap):0} of {in(zswap):0} pages come from storage.",
    "most": FEW_KILLED,
    "most-zswap": FEW_KILLED,
    "pages": WHOLE,
    "cost": (
        "Nothing is killed in these runs. zRAM has a swap tier in them and reads a few pages from it. Most of"
        " the difference between storage alone and hybrid is read-ahead: their presets set fault.around_pages to 8 and 1. A run with"
        " the override fault.around_pages=1 for both (CONFIGS in lab/bench/papers/han.py) shows it."
    ),
    "writes": WHOLE,
}
