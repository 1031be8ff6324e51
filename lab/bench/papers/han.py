"""Han et al. 2018: zRAM and flash side by side, routed by who reclaims."""

from . import published
from .apps import spec
from .engine import MIB, Cell, Machine
from .figure import Figure
from .shape import Column, Statement, Table

NAME = "han"
TITLE = "Hybrid swapping with per-process reclaim"
SOURCE = 'Han, Kim, Lee, Lee, Kim, "A Hybrid Swapping Scheme Based On Per-Process Reclaim ...", IEEE Access 2018'
SETTING = (
    "16 applications that stay, 67 MiB of data and about half a MiB each for the process, in 56 MiB: 1.3 of RAM, as far"
    " as the paper's hybrid extends it. 8 turns, newly shuffled, of which the first starts the applications and is not"
    " counted. The compressed space of zRAM, zSWAP and hybrid is an eighth of RAM (a quarter uncompressed); in a column of"
    " its own zRAM takes what it needs. With hybrid the pager is told when an application leaves the foreground and when it is"
    " triggered again, as memfit bg -w and memfit fg do (rules 4 to 11); in a column of its own nobody tells it."
)
MACHINE = Machine()
BUDGET = 56 * MIB
SPACE = ("sizing.pool_permille=125",)
# Application: KiB of anonymous data by category, and Table 5 (Stylo 4): ms with zRAM, zSWAP, hybrid.
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
CONFIGS = {
    "zram": ("zram", SPACE),
    "zswap": ("zswap-zbud", SPACE),
    "hybrid": ("hybrid18", SPACE),
    "hybrid-untold": ("hybrid18", SPACE),
    "zram-free": ("zram", ()),
    "swap": ("swap", ()),
    "memfit": ("memfit", ()),
}
PHONES = ("Stylo 4", "G7", "V35")
RATED = 9 << 40  # bytes that the paper's storage can take


def cells(ctx):
    path = spec(ctx, "han", [(name, kib, "phone", 512, 512, 0, 400, 0) for name, (kib, _) in APPS.items()])
    command = ctx.program("apps", 3 if ctx.quick else 8, "shuffle", path)
    told = {"hybrid": ("told",)}
    once = ("hybrid-untold", "memfit")
    return [
        Cell("turns", config, (*command, *told.get(config, ())), BUDGET, scheme, overrides, once=config in once, timeout=90)
        for config, (scheme, overrides) in CONFIGS.items()
    ]


def page_costs(cells, config):
    """O(t) of equations 12, 14 and 16 with the paper's costs, seconds; and pages in and out of each space."""
    names = ("faults_file", "read_bytes", "write_bytes", "faults_pool", "compressed")
    got = [cells.value("turns", config, k) for k in names]
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
    n = {}
    for config in CONFIGS:
        entry = cells.value("turns", config, "entry")
        n[f"entry({config} average)"] = entry * 1000 if entry is not None else None
        for name in APPS:
            took = (cells.value("turns", config, "entries") or {}).get(name)
            n[f"entry({config} {name})"] = took * 1000 if took is not None else None
        costs = page_costs(cells, config) or {}
        for key in ("cost", "in", "out", "si", "so"):
            n[f"{key}({config})"] = costs.get(key)
        written, wall = cells.value("turns", config, "write_bytes"), cells.value("turns", config, "wall")
        n[f"written({config})"] = written / MIB if written is not None else None
        n[f"days({config})"] = RATED / (written / wall * 86400) if written and wall else None
    return {**n, **faster(n)}


def own_name(name):
    """Our entry times and pages are those of the phone Stylo 4, what is written that of the G7."""
    for printed, own in ((printed, own) for own, (_, printed) in APPS.items()):
        name = name.replace(f" {printed})", f" {own})")
    if name.startswith(("written(G7 ", "days(G7 ")):
        return name.replace("G7 ", "")
    if name.startswith(("entry(Stylo ", "in(Stylo ", "out(Stylo ", "cost(Stylo ")):
        name = name.replace("Stylo ", "")
        return name.replace(")", " average)") if name.startswith("entry(") and " " not in name else name
    return None


def own(numbers):
    """Numbers of the paper's names and units by our names, in our units: GB written in MB."""
    numbers = published.renamed(numbers, own_name)
    numbers = {name: value * 1024 if name.startswith("written(") else value for name, value in numbers.items()}
    return {**numbers, **faster(numbers)}


def faster(numbers):
    """Of how many applications the entry is faster with hybrid than with another scheme."""
    out = {}
    for other in ("zram", "zswap"):
        pairs = [(numbers.get(f"entry({other} {app})"), numbers.get(f"entry(hybrid {app})")) for app in APPS]
        out[f"faster(hybrid {other})"] = None if None in sum(pairs, ()) else sum(hybrid < it for it, hybrid in pairs)
    return out


PUBLISHED = own(published.load("han"))
TABLES = (
    Table(
        "Mean entry time, ms (published: Stylo 4)",
        "Table 5",
        "application",
        ("average", *APPS),
        tuple(Column(c, f"entry({c} {{}})", 1) for c in CONFIGS),
    ),
    Table(
        "Pages swapped, their cost by the paper's equations, bytes written (published: in 48 h), days until 9 TB are"
        " written at this pace",
        "section 4; equations 12, 14, 16; the rated endurance of its storage",
        "scheme",
        tuple(CONFIGS),
        (
            Column("pages in", "in({})", 0),
            Column("pages out", "out({})", 0),
            Column("of them from storage", "si({})", 0),
            Column("to storage", "so({})", 0),
            Column("O(t), s", "cost({})"),
            Column("written, MiB", "written({})", 1),
            Column("days", "days({})", 1),
        ),
    ),
)
STATEMENTS = (
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
        "most", "hybrid is faster than zRAM for at least 12 of the 16", "Table 5", (12, "<=", "faster(hybrid zram)")
    ),
    Statement("most-zswap", "and than zSWAP", "Table 5", (12, "<=", "faster(hybrid zswap)")),
    Statement("pages", "zSWAP swaps at least 3 times as many pages", "section 4", ("3 * in(hybrid)", "<", "in(zswap)")),
    Statement(
        "cost",
        "the cost of page operations O(t): zRAM alone < hybrid < storage alone",
        "Eq. 1 to 16",
        ("cost(zram-free)", "<", "cost(hybrid)", "<", "cost(swap)"),
    ),
    Statement("writes", "hybrid writes less to storage", "section 4", ("written(hybrid)", "<", "written(zswap)")),
    Statement(
        "memory",
        "hybrid has the largest logical memory (1.29 of RAM against 1.10)",
        "Table 4",
        cannot=(
            "every scheme holds all of the 16 applications here, as none is killed: the logical memory is what the"
            " programs have; the simulation has a low-memory killer."
        ),
    ),
    Statement(
        "kills",
        "a process is swapped out whole instead of being killed",
        "rules 4 to 9",
        cannot=(
            "nothing is killed here: the swap tier takes what leaves. With zRAM it takes what its space has no room for. See the"
            " simulation."
        ),
    ),
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
    "The paper's gain in entry time comes from applications that stay alive: with kills and restarts simulated, hybrid enters them"
    " faster than zRAM and zSWAP by about what is printed, with one number fitted to the paper's zSWAP. That hybrid also moves"
    " several times fewer pages, and writes less, comes out neither live nor simulated: applications that stay are swapped out as a"
    " whole, and what they use comes back, each time. Live, where nothing is killed, hybrid only has that cost. With"
    " recordings of the live runs, simulated on the paper's phone, hybrid moves about a fifth fewer pages than zSWAP."
)
WORKLOADS = (
    (
        "16 applications",
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
    "8 turns for 16.",
    "Only the phone with 16 applications; the 60 of the two larger ones, and 48 hours, would take too long.",
    (
        "An application that was killed starts anew in the paper; here none is, so that no entry pays for a cold start:"
        " the gain that the paper's hybrid has from fewer kills is missing. The simulation has it."
    ),
    "The pages of the files are dropped and read by the kernel without being seen, unless the scheme offers them.",
)
NO_KILLS = (
    "What the paper's hybrid gains is memory: applications that zRAM and zSWAP kill stay, and an entry need not start them anew (1"
    " to 3 s). Nothing is killed here, so an entry is page-ins alone: 20 to 40 us from the pool, 100 from storage. Where zRAM"
    " may take what it needs, an entry takes {entry(zram-free average):1} ms."
)
WHOLE = (
    "With hybrid an application leaves as a whole when memory is short, also the two fifths of it that each trigger touches, and its"
    " working set comes back when it is triggered: {in(hybrid):0} pages in, {in(hybrid-untold):0} when nobody tells the pager,"
    " {in(zswap):0} with zSWAP. The pool has no room for whole applications, so {si(hybrid):0} of them come from storage."
)
EXPLAINED = {
    "fastest": NO_KILLS + " " + WHOLE,
    "slowest": WHOLE,
    "most": NO_KILLS,
    "most-zswap": WHOLE,
    "pages": WHOLE,
    "cost": WHOLE,
    "writes": WHOLE,
}
