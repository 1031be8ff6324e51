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
    "14 applications of 2.3 MiB of anonymous data, 12 MiB of code and 8 MiB of media each, in 48 MiB. What stays of the"
    " anonymous data leaves files as much room as one application's code takes: the paper's read 123 MB in each use, and"
    " gave up 80 to 350, in 2 GB. Pool a tenth. 3 repetitions, of which the first starts the applications and is not"
    " counted. Series with 8 to 16 applications."
)
MACHINE = Machine()
BUDGET = 48 * MIB
POOL = ("sizing.pool_permille=100",)
# Files are in the budget of all, as in the paper's phone; without that the kernel's page cache would hold them for nothing.
# They are given up first, as the kernel does (in the schemes of the paper that is so without being asked for).
FILE_AGE = "reclaim.file_age=64"
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
ANON_KIB, CODE_KIB, FILE_KIB, HOT = 2400, 12288, 20480, 200
CONFIGS = {
    "swap": ("swap", DROPPED),
    "zswap": ("zswap-z3fold", (*POOL, *DROPPED)),
    "apa": ("apa", POOL),
    "apa+sa": ("apa+sa", POOL),
    "apa+ca": ("apa+ca", POOL),
    "ca+sa": ("ca+sa", (*POOL, *DROPPED)),
    "ezswap": ("ezswap", POOL),
    "memfit": ("memfit", ("classes=file-pooled", FILE_AGE)),
}
COUNTS = (8, 12, 14, 16)
SERIES = ("swap", "zswap", "apa", "ezswap")
METRICS = ("launch", "read", "written")


def cells(ctx):
    out = []
    for count in (14,) if ctx.quick else COUNTS:
        rows = [(name, ANON_KIB, "idle", CODE_KIB, FILE_KIB, permille, HOT) for name, permille in APPS[:count]]
        command = ctx.program("apps", 2 if ctx.quick else 3, "cycle", spec(ctx, f"ezswap-{count}", rows))
        for config, (scheme, overrides) in CONFIGS.items():
            if count == 14 or config in SERIES:
                once = count == 12 or config in ("ca+sa", "memfit")
                out.append(Cell(f"apps {count}", config, command, BUDGET, scheme, overrides, once=once))
    return out


def derive(cells):
    n = {}
    for count in COUNTS:
        for config in CONFIGS if count == 14 else SERIES:
            for metric, key in zip(METRICS, ("entry", "sampled_read_all_bytes", "sampled_write_bytes")):
                got = n[f"{metric}({config} {count})"] = cells.quotient(f"apps {count}", config, "swap", key)
                if count == 14:
                    n[f"{metric}({config})"] = got
    for config in CONFIGS:
        n[f"density({config})"] = cells.value("apps 14", config, "density")
        n[f"compressed({config})"] = cells.value("apps 14", config, "compressed")
        hits = cells.quotient_of("apps 14", config, "faults_pool", "faults")
        n[f"hits({config})"] = hits * 100 if hits is not None else None
    return n


def own_name(name):
    """Our numbers are all of 14 applications."""
    return name.replace(" 14)", ")") if name.startswith(("launch(", "read(", "written(", "density(")) else None


def own(numbers):
    """Numbers of the paper's names by our names."""
    return published.renamed(numbers, own_name)


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
        "Launch time relative to swap by the number of applications",
        "Fig. 9, a plot",
        "applications",
        COUNTS,
        tuple(Column(c, f"launch({c} {{}})") for c in SERIES[1:]),
    ),
)
STATEMENTS = (
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
    Statement(
        "few", "with 8 applications APA is ahead of ezswap", "Fig. 9", ("launch(apa 8)", "<", "launch(ezswap 8)")
    ),
    Statement(
        "many",
        "with 16 ezswap is ahead of zswap and of APA",
        "Fig. 9",
        ("launch(ezswap 16)", "<", ["launch(zswap 16)", "launch(apa 16)"]),
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
    "Live, a pool that takes clean pages of files saves reads, and choosing by entropy (CA) saves most of them; simulated it saves"
    " none. How much reads are worth depends on flash against processor: on today's disk the compression of every page that leaves"
    " costs more than the reads it saves, so that launches are not faster live. SA refuses few pages here, since by the paper's Eq. 2"
    " it needs more hits in the pool than these loads have."
)
WORKLOADS = (
    (
        "14 (8 to 16) applications",
        (
            "C, one process each: maps a file private and read-only, keeps anonymous data of which 40 % is zero; a"
            " launch touches 20 % of data and code, which is the same each time; a use then a tenth of the rest, blocks of"
            " 32 KiB of the code at random, eight times as many as there are, and another quarter of the media; every page"
            " is checked"
        ),
        (
            "the applications of a phone are not to be had; code "
            "compresses to 0.27, media to 0.65 to 1 by category; a use is accesses without the 30 s"
        ),
    ),
)
DEVIATIONS = (
    (
        "Only pages of files that a program maps privately and read-only can be taken from it: a file page here belongs"
        " to a process and is forgotten when it ends. So the applications stay through all repetitions: a launch is a"
        " resume."
    ),
    (
        "Mapped files are in the budget of every scheme (`classes`), also of plain swap, which drops their pages. Bytes"
        " read are those from the swap tier and those of files read again, in the counted repetitions."
    ),
    "Where the paper prints percentages only, the published values are chained from them: approximate.",
)
NO_HITS = (
    "By Eq. 2 a clean page of a file is refused only when capacity * mean cost * hit rate / mean ratio is above 1 / r: with the"
    " ratio 0.35 and the cost 1.3 of these pools, when more than 27 % of the last 256 page-ins were hits. Here {hits(apa+sa):0} % of all faults are:"
    " most of what a launch and a use bring in was last used one turn before. So SA admits nearly all."
)
CPU_FIRST = (
    "A page from the swap tier or a file comes in 0.1 ms here, and is read while others are; on the paper's board flash took"
    " some times as long against its processor. What a pool of files costs is the compression of every page that"
    " leaves ({compressed(apa):0} of them with APA), and that outweighs the reads it saves."
)
EXPLAINED = {
    "zswap-reads": (
        "Writes fall ({written(zswap)}). Reads do not rise: a pool of a tenth takes 4.8 MiB from the files, and the anonymous pages that are"
        " no longer read from swap save as much. In the paper anonymous pages are a twentieth of what is read; a like load with"
        " all data of files larger than RAM (code 12 MiB, anonymous 2.6 MiB for 2.4) read 1.05 of swap with zswap and 0.27 with"
        " apa: it is a matter of how near the code of one application is to what is left for files."
    ),
    "zswap-slower": CPU_FIRST + " zswap launches faster where its pool answers ({launch(zswap)}).",
    "apa-reads": (
        "Reads are {read(apa)} of swap's, with zswap {read(zswap)}. The pool holds 3 pages a frame of code, but also all media on their way out, and"
        " its 1200 frames are turned over 40 times a turn; see zswap-reads for a load on which they fall by three quarters."
    ),
    "apa-slowest": "The four with a pool of files differ little, as CA and SA cost time as well. " + CPU_FIRST,
    "ezswap-launch": CPU_FIRST,
    "ezswap-read": "CA is what saves reads here ({read(apa+ca)}). " + NO_HITS,
    "ezswap-writes": (
        "Pages of files crowd anonymous ones out of the pool, so that they are written: the paper says so itself of its 14"
        " applications under APA (Fig. 9), and yet counts 0.40 of swap's writes (Fig. 8)."
    ),
    "density": NO_HITS,
    "few": (
        "Files are as short of room with 8 applications as with 14 here, as it is one application's code that does not fit; so there"
        " is no case of few evictions."
    ),
    "many": CPU_FIRST,
    "compressions": NO_HITS,
}
