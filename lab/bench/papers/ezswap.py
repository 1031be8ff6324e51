"""Kim, Kim, Seo 2019 (ezswap): clean file pages, admission by entropy, eviction by lottery."""

from . import published
from .apps import spec
from .engine import MIB, Cell, Machine
from .figure import Figure
from .shape import Column, Statement, Table

NAME = "ezswap"
TITLE = "ezswap"
SOURCE = 'Kim, Kim, Seo, "ezswap: Enhanced Compressed Swap Scheme for Mobile Devices", IEEE Access 2019'
SETTING = (
    "A twentieth of the board's size: 14 applications of 2.1 MiB of anonymous data, 3 MiB of code and 10 MiB of media"
    " each, and services of the system with a file of 20 MiB, of which each launch and each use needs a part, and 4.75 MiB of"
    " data; in 50 MiB, as the paper's pool was a tenth of what was free for programs. Pool a tenth. 3 repetitions, of which the"
    " first is not counted. Series with 8 to 16 applications."
)
MACHINE = Machine()
BUDGET = 50 * MIB
POOL = ("sizing.pool_permille=100",)
# Files are in the budget of all, as in the paper's phone; without that the kernel's page cache would hold them for nothing.
# They are given up first, as the kernel does.
FILE_AGE = "reclaim.file_age=24"
DROPPED = ("classes=file-dropped", FILE_AGE)
# In the order of the paper's list: name and permille of random bytes in its media.
UTILITY, SNS, MEDIA, GAME = 650, 800, 1000, 900
APPS = (
    ("PlayStore", UTILITY),
    ("Calendar", UTILITY),
    ("Gmail", UTILITY),
    ("Wikipedia", UTILITY),
    ("Chrome", UTILITY),
    ("Facebook", SNS),
    ("Twitter", SNS),
    ("YouTube", MEDIA),
    ("Twitch", MEDIA),
    ("Kindle", MEDIA),
    ("TED", MEDIA),
    ("AngryBirds", GAME),
    ("CandyCrush", GAME),
    ("PUBG", GAME),
    ("Excel", UTILITY),
    ("2048", GAME),
)
# Fitted, see DEVIATIONS.
ANON_KIB, CODE_KIB, FILE_KIB, HOT, USES = 2100, 3072, 13312, 200, 200
# Services of the system: their data, and of its blocks so many in a thousand for each launch; their file, and of its blocks so many
# in a thousand for each launch and its use.
SERVICES_KIB, SERVICES_USES, SHARED_KIB, SHARED_USES = 4864, 50, 20480, 6200
CONFIGS = {
    "swap": ("swap", DROPPED),
    "zswap": ("zswap-z3fold", (*POOL, *DROPPED)),
    "apa": ("apa", (*POOL, FILE_AGE)),
    "apa+sa": ("apa+sa", (*POOL, FILE_AGE)),
    "apa+ca": ("apa+ca", (*POOL, FILE_AGE)),
    "ca+sa": ("ca+sa", (*POOL, *DROPPED)),
    "ezswap": ("ezswap", (*POOL, FILE_AGE)),
    "memfit": ("memfit", ("classes=file-pooled", FILE_AGE)),
}
# The paper's sizes are divided by this.
SCALE = 20
REPETITIONS = 3
COUNTS = (8, 10, 12, 14, 16)
SERIES = ("swap", "zswap", "apa", "ezswap")
METRICS = ("launch", "read", "written")


def cells(ctx):
    out = []
    for count in (14,) if ctx.quick else COUNTS:
        rows = [(name, ANON_KIB, "idle", CODE_KIB, FILE_KIB, permille, HOT, USES) for name, permille in APPS[:count]]
        rows.append(("services", SERVICES_KIB, "idle", SHARED_KIB, SHARED_KIB, 0, SERVICES_USES, SHARED_USES))
        command = ctx.program("apps", 2 if ctx.quick else REPETITIONS, "cycle", spec(ctx, f"ezswap-{count}", rows), "ends")
        for config, (scheme, overrides) in CONFIGS.items():
            if count == 14 or config in SERIES:
                once = config in ("ca+sa", "memfit")
                out.append(Cell(f"apps {count}", config, command, BUDGET, scheme, overrides, once=once, timeout=90))
    return out


def derive(cells):
    n = {}
    for count in COUNTS:
        for config in CONFIGS if count == 14 else SERIES:
            for metric, key in zip(METRICS, ("entry", "sampled_read_all_bytes", "sampled_write_bytes")):
                got = n[f"{metric}({config} {count})"] = cells.quotient(f"apps {count}", config, "swap", key)
                if count == 14:
                    n[f"{metric}({config})"] = got
    for count in COUNTS:
        workload = f"apps {count}"
        n[f"files per anonymous({count})"] = cells.quotient_of(workload, "swap", "sampled_file_dropped", "sampled_to_swap")
        counted = cells.value(workload, "swap", "sampled_turns")
        for name, key, unit in (
            ("anonymous", "sampled_to_swap", 1),
            ("files", "sampled_file_dropped", 1),
            ("written MB", "sampled_write_bytes", 4e-6),
            ("read MB", "sampled_read_all_bytes", 4e-6),
        ):
            got = cells.value(workload, "swap", key)
            n[f"{name}({count})"] = got * SCALE * unit / counted if got is not None and counted else None
    for config in CONFIGS:
        n[f"density({config})"] = cells.value("apps 14", config, "density")
        n[f"compressed({config})"] = cells.value("apps 14", config, "compressed")
        hits = cells.quotient_of("apps 14", config, "faults_pool", "faults")
        n[f"hits({config})"] = hits * 100 if hits is not None else None
    return n


def own_name(name):
    """Our numbers are of 14 applications where they do not say."""
    if name.startswith(("anonymous(", "files", "written MB(", "read MB(")):
        return name
    return name.replace(" 14)", ")") if name.startswith(("launch(", "read(", "written(", "density(")) else None


def own(numbers):
    """Numbers of the paper's names by our names; those of a series also by the number of applications."""
    series = {name: value for name, value in numbers.items() if name.startswith("launch(") and name.endswith(" 14)")}
    return series | published.renamed(numbers, own_name)


PUBLISHED = own(published.load("ezswap"))
TABLES = (
    Table(
        "14 applications, relative to swap",
        "Fig. 8, in part chained from percentages; Table 3",
        "scheme",
        tuple(CONFIGS),
        (
            Column("launch time", "launch({})", 2, 1),
            Column("bytes read", "read({})", 2, 1),
            Column("bytes written", "written({})", 2, 1),
            Column("zpages a MiB", "density({})", 0),
        ),
    ),
    Table(
        "What plain swap evicts in a repetition, and reads and writes in four, at the paper's size",
        "Figs. 4 and 9; section IV-B",
        "applications",
        COUNTS,
        (
            Column("anonymous pages", "anonymous({})", 0),
            Column("pages of files for each", "files per anonymous({})", 1),
            Column("MB read", "read MB({})", 0),
            Column("MB written", "written MB({})", 0),
        ),
    ),
    Table(
        "Launch time relative to swap by the number of applications",
        "Fig. 9, a plot",
        "applications",
        COUNTS,
        tuple(Column(c, f"launch({c} {{}})") for c in SERIES[1:]),
    ),
)
FITTED = "Data of an application were fitted to the evictions of plain swap with 14 and with 8."
STATEMENTS = (
    Statement(
        "files",
        "pages of files leave 20 times as often as anonymous ones (at least 10), 14 applications",
        "Fig. 4",
        ("files per anonymous(14)", ">=", 10),
        put_in=FITTED,
    ),
    Statement(
        "anonymous",
        "more anonymous pages leave with more applications",
        "Fig. 9",
        tuple(f"anonymous({count})" if part else "<" for count in COUNTS for part in (0, 1))[1:],
        put_in=FITTED,
    ),
    Statement(
        "zswap-reads",
        "zswap trades writes for reads: more reads than swap, fewer writes",
        "Fig. 8",
        ("written(zswap)", "<", 1, "<", "read(zswap)"),
    ),
    Statement("zswap-slower", "and launches slower than plain swap", "Fig. 8", (1, "<", "launch(zswap)")),
    Statement(
        "apa-reads", "APA cuts reads by about a half against zswap", "Fig. 8", ("read(apa)", "<", "0.7 * read(zswap)")
    ),
    Statement(
        "apa-slowest",
        "but launches slowest of all",
        "Fig. 8",
        (["launch(swap)", "launch(zswap)", "launch(apa+sa)", "launch(ezswap)"], "<", "launch(apa)"),
    ),
    Statement("sa", "SA is the larger single gain", "Fig. 8", ("launch(apa+sa)", "<", "launch(apa+ca)")),
    Statement(
        "ezswap-launch",
        "ezswap is best on launch time",
        "Fig. 8",
        ("launch(ezswap)", "<", [f"launch({c})" for c in ("swap", "zswap", "apa", "apa+sa", "apa+ca")]),
    ),
    Statement(
        "ezswap-read",
        "and on bytes read",
        "Fig. 8",
        ("read(ezswap)", "<", [f"read({c})" for c in ("zswap", "apa", "apa+sa", "apa+ca")]),
    ),
    Statement(
        "ezswap-writes",
        "with writes close to zswap's (to a third)",
        "Fig. 8",
        ("written(ezswap)", "<", "1.34 * written(zswap)"),
    ),
    Statement(
        "density",
        "density: APA < APA+SA < APA+CA < ezswap < zswap",
        "Table 3",
        ("density(apa)", "<", "density(apa+sa)", "<", "density(apa+ca)", "<", "density(ezswap)", "<", "density(zswap)"),
    ),
    Statement(
        "bound",
        "three zpages a frame: never more than 768 a MiB",
        "Table 3",
        ([f"density({c})" for c in ("zswap", "apa", "apa+sa", "apa+ca", "ezswap")], "<=", 768),
        put_in="z3fold has three places a frame.",
    ),
    *(
        Statement(
            f"few {count}",
            f"with {count} applications APA is ahead of ezswap",
            "Fig. 9",
            (f"launch(apa {count})", "<", f"launch(ezswap {count})"),
        )
        for count in (8, 10)
    ),
    *(
        Statement(
            f"many {count}",
            f"with {count} ezswap is ahead of zswap and of APA",
            "Fig. 9",
            (f"launch(ezswap {count})", "<", [f"launch(zswap {count})", f"launch(apa {count})"]),
        )
        for count in (12, 14, 16)
    ),
    Statement(
        "compressions",
        "SA saves three quarters of the compressions of APA (to 40 %)",
        "Fig. 10",
        ("compressed(apa+sa)", "<", "0.4 * compressed(apa)"),
    ),
)
FIGURE = Figure(
    "Kim, Kim, Seo 2019, Fig. 8: 14 applications beside plain swap",
    "quotient to plain swap; below 1 is better",
    tuple(
        (f"{what}, {scheme}", f"{metric}({scheme})", None)
        for metric, what in (("launch", "launch time"), ("read", "bytes read"), ("written", "bytes written"))
        for scheme in ("zswap", "apa", "apa+sa", "apa+ca", "ezswap")
    ),
)
DISCUSSION = (
    "The sizes are fitted to the pages that plain swap evicts in the paper. With them a pool that takes pages of files saves reads, live"
    " and simulated. Simulated, on average over the seeds, APA launches slowest of the schemes with such a pool, SA saves more of that"
    " than CA, and the pools have about the printed density; but this depends on which of several loads that fit about as well is"
    " taken. Live, launches differ by less than the rounds do. SA refuses fewer pages than printed. How much the saved reads are worth depends on flash against"
    " processor: on the paper's board, simulated, the codec costs more than they save."
)
WORKLOADS = (
    (
        "14 (8 to 16) applications, and the system",
        (
            "C, one process each: maps a file private and read-only, keeps anonymous data of which 40 % is zero; a"
            " launch fills or touches the data and touches 20 % of the code, the same each time; a use then touches a tenth of the rest, a"
            " fifth of the code in random blocks of 32 KiB, and a quarter of the media. A process of services has a file and data that"
            " each launch and each use needs: random blocks of the file, 6.2 times as many as there are, a fifth of them for the launch,"
            " and of its data one in twenty for a launch. Every page is checked"
        ),
        (
            "the applications of a phone are not to be had; code compresses to 0.56, a fifth of it to 0.91, as programs and libraries do"
            " today, media to 0.74 to 1 by category; a use is accesses without the 30 s"
        ),
    ),
)
DEVIATIONS = (
    (
        "Fitted, to the pages that plain swap evicts in a repetition with 14 and with 8 applications: the data of an application, and"
        " that a page of a file counts as 24 times as old as it is. All other sizes are those of the simulation."
    ),
    (
        "The programs map their files privately and read-only: a file page here belongs to a process and is forgotten when it ends."
        " (Of shared mappings it would stay.) Applications end after each repetition, so that their own files are read anew,"
        " under every scheme; that is not counted. The services stay."
    ),
    (
        "Mapped files are in the budget of every scheme (`classes`), also of plain swap, which drops their pages. Bytes"
        " read are those from the swap tier and those of files read again, in the counted repetitions."
    ),
    "Where the paper prints percentages only, the published values are chained from them: approximate.",
)
WITH_READS = (
    "Of the schemes that take pages of files the medians go with the bytes read: launch {launch(apa)} for APA, {launch(apa+ca)} with CA,"
    " {launch(apa+sa)} with SA, {launch(ezswap)} for ezswap; reads {read(apa)}, {read(apa+ca)}, {read(apa+sa)}, {read(ezswap)}."
    " APA compresses most, which a processor of today does quickly."
)
SPREAD = (
    "The medians are {launch(zswap)} for zswap, {launch(apa+sa)} for APA with SA, {launch(apa+ca)} with CA; they differ by less than the rounds do."
)
FEW_REFUSED = (
    "SA refuses what compresses worst: {compressed(apa+sa):0} compressions of {compressed(apa):0} are left. How many of the evicted pages are media, which it"
    " would refuse, the paper does not print."
)
FEW_LEAVE = "With few applications the differences are those of the rounds: nearly all that a launch needs is there."
CODEC = (
    "ezswap compresses {compressed(ezswap):0} pages with 14 applications, zswap {compressed(zswap):0}: what the pool saves in reads, of a disk"
    " that answers in 0.1 ms, the codec costs."
)
EXPLAINED = {
    "zswap-reads": (
        "Reads are {read(zswap)} of plain swap's. The pool takes its room from files as from the data of applications, which leave a"
        " little more and do not come back before they end."
    ),
    "zswap-slower": SPREAD,
    "apa-reads": (
        "Reads are {read(apa)} of plain swap's, with zswap {read(zswap)}; the pool answers {hits(apa):0} % of the faults."
    ),
    "apa-slowest": WITH_READS,
    "ezswap-launch": WITH_READS,
    "ezswap-read": "SA refuses pages of the services' file that compress badly, {read(ezswap)} of plain swap's reads are left with it, {read(apa)} without.",
    "ezswap-writes": (
        "zswap writes {written(zswap)} of what plain swap does: its pool has room for nearly all data that leave in a repetition. Pages of"
        " files crowd them out, as the paper says of its 14 applications under APA (Fig. 9)."
    ),
    "density": "SA packs more than CA here, as it keeps out what fills a frame alone.",
    "few 8": FEW_LEAVE,
    "few 10": FEW_LEAVE,
    "many 12": CODEC,
    "many 14": CODEC,
    "many 16": CODEC,
    "compressions": FEW_REFUSED,
}
