"""Han et al. 2018: zRAM and flash side by side, routed by who reclaims."""

from .apps import spec
from .engine import MIB, Cell, Machine
from .shape import Column, Statement, Table

NAME = "han"
TITLE = "Hybrid swapping with per-process reclaim"
SOURCE = 'Han, Kim, Lee, Lee, Kim, "A Hybrid Swapping Scheme Based On Per-Process Reclaim ...", IEEE Access 2018'
SETTING = (
    "16 applications that stay, 67 MiB of data and about half a MiB each for the process, in 56 MiB: 1.3 of RAM, as far"
    " as the paper's hybrid extends it. 8 turns, newly shuffled, of which the first starts the applications and is not"
    " counted. The compressed space of zswap and hybrid is an eighth of RAM (a quarter uncompressed); zRAM alone may"
    " take what it needs."
)
MACHINE = Machine()
BUDGET = 56 * MIB
SPACE = ("sizing.pool_permille=125",)
# Application: KiB of anonymous data by category, and Table 5 (Stylo 4): ms with zRAM, zSWAP, hybrid.
GAME, MEDIA, UTILITY, BROWSER = 6144, 3584, 2304, 4096
APPS = {
    "ClashRoyale": (GAME, 2120, 1990, 1700),
    "Lineage2": (GAME, 3120, 3090, 2960),
    "Asphalt8": (GAME, 1370, 1460, 1460),
    "Raven": (GAME, 2190, 2840, 1480),
    "Anypang3": (GAME, 2140, 1810, 1200),
    "FIFA4M": (GAME, 2400, 3010, 1920),
    "YouTube": (MEDIA, 1880, 1840, 1640),
    "Camera": (MEDIA, 1140, 1010, 990),
    "Gallery": (MEDIA, 1530, 1670, 1200),
    "Music": (MEDIA, 1520, 1860, 980),
    "PlayStore": (UTILITY, 1120, 1200, 820),
    "Map": (UTILITY, 2350, 2230, 1530),
    "Phone": (UTILITY, 1510, 1950, 1470),
    "Settings": (UTILITY, 1810, 1600, 950),
    "Chrome": (BROWSER, 840, 830, 790),
    "Naver": (BROWSER, 760, 1770, 680),
}
CONFIGS = {
    "zram": ("zram", ()),
    "zswap": ("zswap-zbud", SPACE),
    "hybrid": ("hybrid18", SPACE),
    "swap": ("swap", ()),
    "memfit": ("memfit", ()),
}
PHONES = ("Stylo 4", "G7", "V35")
RATED = 9 << 40  # bytes that the paper's storage can take


def cells(ctx):
    path = spec(ctx, "han", [(name, kib, "phone", 512, 512, 0, 400) for name, (kib, *_) in APPS.items()])
    command = ctx.program("apps", 3 if ctx.quick else 8, "shuffle", path)
    return [
        Cell("turns", config, command, BUDGET, scheme, overrides, once=config in ("swap", "memfit"), timeout=90)
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
    for other in ("zram", "zswap"):
        pairs = [(n[f"entry({other} {a})"], n[f"entry(hybrid {a})"]) for a in APPS]
        n[f"faster(hybrid {other})"] = sum(h < o for o, h in pairs) if all(None not in p for p in pairs) else None
    return n


PUBLISHED = {
    "entry(zram average)": 1737,
    "entry(zswap average)": 1885,
    "entry(hybrid average)": 1360,
    "in(zswap)": 219892,
    "out(zswap)": 265444,
    "in(hybrid)": 56492,
    "out(hybrid)": 81002,
    # 48 h with 60 applications, MB.
    "written(zswap)": 29 * 1024,
    "written(hybrid)": 4.5 * 1024,
    "days(zswap)": 635,
    "days(hybrid)": 4096,
    **{
        f"entry({config} {name})": row[i]
        for name, row in APPS.items()
        for i, config in enumerate(("zram", "zswap", "hybrid"), 1)
    },
}
PUBLISHED.update(
    {f"faster(hybrid {o})": sum(row[3] < row[i] for row in APPS.values()) for i, o in ((1, "zram"), (2, "zswap"))}
)
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
    Statement("writes", "hybrid writes less to storage", "section 4", ("written(hybrid)", "<", "written(zswap)")),
    Statement(
        "memory",
        "hybrid has the largest logical memory (1.29 of RAM against 1.10)",
        "Table 4",
        cannot=(
            "every scheme holds all of the 16 applications here, as none is killed: the logical memory is what the"
            " programs have."
        ),
    ),
    Statement(
        "kills",
        "a process is swapped out whole instead of being killed",
        "rules 4 to 9",
        cannot="memfit kills no program to make room.",
    ),
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
        " the gain that the paper's hybrid has from fewer kills is missing."
    ),
    "The pages of the files are dropped and read by the kernel without being seen, unless the scheme offers them.",
)
NO_KILLS = (
    "What the paper's hybrid gains is memory: applications that zRAM and zSWAP kill stay, and an entry need not start them anew (1"
    " to 3 s). Nothing is killed here, so an entry is page-ins alone: 20 to 40 us from the pool, 100 from storage. zRAM needs no"
    " storage for these 75 MiB at C = 2; with a pool no larger than that of hybrid it took 6.8 ms against 7.2 (one earlier run)."
)
WHOLE = (
    "The paper's hybrid swaps less at all, because processes leave and come as a whole and are then left alone (rules 4 to 9), which"
    " is not implemented; what is, by-origin routing, sends to storage what background reclaim takes, three pages of four here,"
    " while zSWAP's pool takes them first."
)
EXPLAINED = {
    "fastest": NO_KILLS,
    "slowest": WHOLE,
    "most": NO_KILLS,
    "most-zswap": WHOLE,
    "pages": WHOLE,
    "writes": WHOLE,
}
