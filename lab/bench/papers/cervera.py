"""Cervera, Cortes, Becerra 1999: a small write cache of compressed pages against plain swap."""

import os
import random
import subprocess

from . import published
from .engine import MIB, Cell, Machine
from .figure import Figure
from .shape import Column, Statement, Table

NAME = "cervera"
TITLE = "Compressed swap with a write cache"
SOURCE = 'Cervera, Cortes, Becerra, "Improving Application Performance through Swap Compression", FREENIX 1999'
SETTING = (
    "Half the paper's scale: 30 MiB for its 64 MiB less 8 for the system (28, and what memfit and the images of the"
    " programs take). The cache keeps its share of RAM: 1 MB is 18 permille. General experiment: 1 MB, threshold 50 %."
)
MACHINE = Machine()
BUDGET = 30 * MIB
MIDDLE = ("fft10", "sort", "sort6", "simulator", "xanim", "xanim4")
ALL = ("fft", *MIDDLE, "simulator5")
# The paper's Linux 2.0 reads no neighbours of a page.
PLAIN = ("fault.around_pages=1",)
CACHES = {"256K": 5, "1M": 18, "4M": 71}  # permille of the budget
THRESHOLDS = (1, 20, 70)
SINGLE, SEVERAL = "xanim", "xanim4"
# With which section 2.4 is judged: blocks that were read, cached and not.
READERS = ("sort", "sort6", "simulator", "xanim")


def words(count):
    """Made of syllables, as no dictionary is installed."""
    rng = random.Random(1)
    syllables = [a + b + c for a in "bcdfghklmnprst" for b in "aeiou" for c in ("", "n", "r", "st", "l")]
    return ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(count)]


def text(ctx, mib):
    """Lines of words in disorder, and the same sorted. Paths. With a word a line most of what sort swaps would be its pointers to
    lines, 32 bytes each today; with two or three the ratio is about the paper's."""
    path = f"{ctx.work}/lines-{mib}"
    if not os.path.exists(f"{path}.sorted"):
        rng, lines, size = random.Random(2), [], 0
        listed = words(100_000)
        while size < mib * MIB:
            lines.append(" ".join(rng.choices(listed, k=rng.randint(2, 3))))
            size += len(lines[-1]) + 1
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n")
        subprocess.run(["sort", "-o", f"{path}.new", path], env=ctx.env, check=True)
        os.rename(f"{path}.new", f"{path}.sorted")
    return path


def sort(ctx, count, mib):
    path = text(ctx, mib)
    # Exit 2: sort failed; 1: what it wrote is wrong.
    line = """out="$1.$$"; trap 'rm -f "$out"' EXIT
              sort -S 300M --parallel=1 -o "$out" "$1" || exit 2
              cmp "$out" "$1.sorted" || { echo MISMATCH; exit 1; }"""
    return ctx.many(count, "sh", "-c", line, "sh", path)


def commands(ctx):
    small = ctx.quick
    return {
        "fft": ctx.program("fft", 1024, 2048, 1),
        "fft10": ctx.many(10, *ctx.program("fft", 256, 512, 1, 1)),
        "sort": sort(ctx, 1, 20),
        "sort6": sort(ctx, 6, 4),
        "simulator": ctx.program("simulator", 60, 950, 5_000 if small else 15_000),
        "simulator5": ctx.many(5, *ctx.program("simulator", 12, 5, 30_000 if small else 60_000)),
        "xanim": ctx.program("film", 750, 1 if small else 2),
        "xanim4": ctx.many(4, *ctx.program("film", 190, 1 if small else 2)),
    }


def cache(name, threshold=50):
    return f"sizing.pool_permille={CACHES[name]}", f"replacement.threshold_percent={threshold}"


def cells(ctx):
    c = commands(ctx)
    out = []
    for w in ALL:
        out.append(Cell(w, "swap", c[w], BUDGET, "swap", PLAIN, timeout=90))
        out.append(Cell(w, "cswap", c[w], BUDGET, "cervera99", cache("1M"), timeout=90))
        out.append(Cell(w, "cswap-best", c[w], BUDGET, "cervera99", cache("1M", 15), once=True))
        out.append(Cell(w, "memfit", c[w], BUDGET, "memfit", once=True, timeout=30))
    if not ctx.quick:
        for w in ("sort", "xanim"):
            out += [Cell(w, f"cache-{n}", c[w], BUDGET, "cervera99", cache(n)) for n in CACHES if n != "1M"]
        for w in (SINGLE, SEVERAL):
            out += [Cell(w, f"threshold-{t}", c[w], BUDGET, "cervera99", cache("256K", t)) for t in THRESHOLDS]
        reads_too = (*cache("1M"), "swap_format.cache_reads=1")
        out += [Cell(w, "reads-too", c[w], BUDGET, "cervera99", reads_too) for w in READERS]
    return out


def derive(cells):
    n = {}
    for w in ALL:
        n[f"speedup({w})"] = cells.quotient(w, "swap", "cswap")
        n[f"best({w})"] = cells.quotient(w, "swap", "cswap-best")
        n[f"ours({w})"] = cells.quotient(w, "swap", "memfit")
        n[f"ratio({w})"] = cells.value(w, "cswap", "ratio")
        n[f"written({w})"] = cells.quotient(w, "cswap", "swap", "write_bytes")
        n[f"read({w})"] = cells.quotient(w, "cswap", "swap", "read_bytes")
    for w in ("sort", "xanim"):
        for name in CACHES:
            n[f"cache({w} {name})"] = cells.quotient(w, "swap", "cswap" if name == "1M" else f"cache-{name}")
    for w in (SINGLE, SEVERAL):
        for t in THRESHOLDS:
            n[f"threshold({w} {t})"] = cells.quotient(w, "swap", f"threshold-{t}")
    for w in READERS:
        n[f"hits({w})"] = cells.quotient(w, "cswap", "reads-too", "faults_pool")
        n[f"blocks({w})"] = cells.quotient(w, "cswap", "reads-too", "write_bytes")
        n[f"reads too({w})"] = cells.quotient(w, "swap", "reads-too")
    return n


def own(numbers):
    """Numbers of the paper's names by our names."""
    return published.renamed(numbers, lambda name: name.replace("-x", ""))


PUBLISHED = own(published.load("cervera"))
LABELS = {"fft10": "fft x10", "sort6": "sort x6", "simulator5": "simulator x5", "xanim4": "xanim x4"}
TABLES = (
    Table(
        "Speedup: time with plain swap / time with compressed swap",
        "Fig. 4; ratios from Table 1; the six in the middle are given as a range only",
        "program",
        ALL,
        (
            Column("ratio", "ratio({})", 3),
            Column("speedup", "speedup({})", 2, 1),
            Column("threshold 15 %", "best({})"),
            Column("memfit", "ours({})"),
            Column("bytes written / plain", "written({})"),
            Column("bytes read / plain", "read({})"),
        ),
        LABELS,
    ),
    Table(
        "Speedup against the size of the cache, threshold 50 %",
        "Fig. 5, a plot",
        "cache",
        tuple(CACHES),
        (Column("sort", "cache(sort {})"), Column("xanim", "cache(xanim {})")),
    ),
    Table(
        "Speedup against the threshold, cache 256 KB",
        "Fig. 6, a plot",
        "threshold, %",
        THRESHOLDS,
        (Column("xanim", "threshold(xanim {})"), Column("xanim x4", "threshold(xanim4 {})")),
    ),
    Table(
        "A cache without blocks that were read, and with them",
        "Section 2.4, without numbers; cache 1 MB, threshold 50 %; without / with",
        "program",
        READERS,
        (
            Column("hits", "hits({})"),
            Column("bytes written", "blocks({})"),
            Column("speedup without", "speedup({})"),
            Column("speedup with", "reads too({})"),
        ),
        LABELS,
    ),
)
STATEMENTS = (
    Statement("fft", "fft is slower with compression: one page a buffer", "Fig. 4", ("speedup(fft)", "<", 1)),
    Statement("middle", "the other six gain", "Fig. 4", (1, "<", [f"speedup({w})" for w in MIDDLE])),
    Statement(
        "order",
        "fft < the six < simulator x5",
        "Fig. 4",
        ("speedup(fft)", "<", [f"speedup({w})" for w in MIDDLE], "<", "speedup(simulator5)"),
    ),
    Statement(
        "simulator",
        "simulator gains little for its ratio: less than half of what simulator x5 gains",
        "Fig. 4",
        ("2 * speedup(simulator)", "<", "speedup(simulator5)"),
    ),
    Statement("gain-at-62", "a gain even at a ratio of 62 % (fft x10)", "summary", (1, "<", "speedup(fft10)")),
    Statement(
        "fewer-writes",
        "more fits into the same swap: fewer bytes written, but for fft",
        "Fig. 7",
        ([f"written({w})" for w in (*MIDDLE, "simulator5")], "<", 1),
    ),
    Statement(
        "large-cache",
        "very large caches hurt",
        "Fig. 5",
        (["cache(sort 4M)", "cache(xanim 4M)"], "<", ["cache(sort 1M)", "cache(xanim 1M)"]),
    ),
    Statement(
        "low-threshold",
        "very small thresholds are bad: many small writes",
        "Fig. 6",
        (["threshold(xanim 1)", "threshold(xanim4 1)"], "<", ["threshold(xanim 20)", "threshold(xanim4 20)"]),
    ),
    Statement(
        "high-threshold-one",
        "a large threshold keeps the gain of one process (to a tenth)",
        "Fig. 6",
        ("0.9 * threshold(xanim 20)", "<", "threshold(xanim 70)"),
    ),
    Statement(
        "high-threshold-several",
        "but several processes lose: they wait behind the long write",
        "Fig. 6",
        ("threshold(xanim4 70)", "<", "threshold(xanim4 20)"),
    ),
    Statement(
        "hits-of-reads",
        "a cache without blocks that were read has about as many hits (within a fifth)",
        "Section 2.4",
        (0.8, "<", [f"hits({w})" for w in READERS]),
    ),
    Statement(
        "writes-for-reads",
        "and far fewer blocks are written (a fifth fewer)",
        "Section 2.4",
        ([f"blocks({w})" for w in READERS], "<", 0.8),
    ),
)
FIGURE = Figure(
    "Cervera, Cortes, Becerra 1999, Fig. 4: what compressed swap gains",
    "time with plain swap / time with compressed swap",
    tuple((LABELS.get(w, w), f"speedup({w})", None) for w in ALL),
)
DISCUSSION = (
    "On the paper's disk a write costs a seek, and a cache of compressed pages writes many pages at once. What that gains depends on how"
    " many pages plain swap writes at once. Simulated with the four of Linux 2.0, programs of one process gain 1.6 to 2.6; if it writes"
    " 32, 0.9 to 1.4. The printed 0.96 of fft and 1.2 to 2.1 of most others are between these. Small thresholds cost time, as printed."
    " What several processes gain depends on how far one of them comes while the others wait for the disk, and so on how long they"
    " compute, which the paper does not say. Live, a write costs no seek. Plain swap writes neighbours together as well, while the"
    " programs go on; with the cache, a program that needs room waits for each write (rule 12). What is left of the gain there is"
    " what the cache answers itself."
)
WORKLOADS = (
    (
        "fft",
        "C, 1024 x 2048 complex numbers in place, rows then columns, there and back",
        (
            "numpy is not asked for; half the size; each "
            "pass rounded to float32 keeps the ratio; the matrix must come back"
        ),
    ),
    ("fft x10", "ten of 256 x 512 with a second matrix", "half the size"),
    (
        "sort",
        "GNU sort in memory, 20 MiB of lines of two or three words",
        (
            "words of syllables: no dictionary is installed; several a line, so that it compresses as the paper's; compared with"
            " the sorted text"
        ),
    ),
    ("sort x6", "six of 4 MiB", ""),
    (
        "simulator",
        "C, events of 512 bytes, mostly zero; freed records in a queue",
        "half of 120 MiB; each record has a check",
    ),
    (
        "simulator x5",
        "five of 12 MiB, of whose records 0.5 % wait at a time",
        "the paper names the ratio only: practically zero pages",
    ),
    (
        "xanim",
        "C, 750 frames of 320 x 240, Floyd-Steinberg to 216 colours, kept, shown twice",
        "no ffmpeg, no display: the film is painted; each frame has a digest",
    ),
    ("xanim x4", "four of 190 frames", ""),
)
DEVIATIONS = (
    (
        "Storage here is a virtual disk behind O_DIRECT: a read of 4 KiB takes about 0.1 ms and seeks cost nothing; the"
        " paper's took about 10 ms. LZO takes about 6 us a page against its 300 us. So the quotient disk / codec is"
        " about the same, but that of disk / fault is not: a fault costs 10 to 20 us here, and bounds every gain."
    ),
    (
        "Two CPUs, and compression and writing in threads of their own. A process that needs room waits until the"
        " writes of a cleaning have ended, as in rule 12; others go on."
    ),
)
READS = (
    "The published gain is that of the writes: each page-out of Linux 2.0 was a seek of its own, in the way of the reads that"
    " programs wait for. Plain swap here writes 128 KiB at a time, beside the reads and without seeks, and nobody waits for it. With"
    " the cache, a program that needs room waits for each write (rule 12). Where the cache holds little of what comes back (fft,"
    " xanim), as much is read in both, 4 KiB at a time."
)
CROWDED = (
    "Several processes wait less for reads, since others run meanwhile, and want the CPU time that evictions and LZO take (sort x6"
    " {speedup(sort6)}, xanim x4 {speedup(xanim4)}). "
)
EXPLAINED = {
    "fft": (
        "It writes {written(fft)} of plain swap's bytes: a fifth of its pages compress to half. The rest costs the time of LZO,"
        " 6 us a page, in a thread beside the program."
    ),
    "middle": CROWDED + READS,
    "order": CROWDED + READS,
    "simulator": "Both vary from round to round, and twice the gain of one is close to that of the other.",
    "gain-at-62": "It is over in half a second, and varies with that. " + READS,
    "fewer-writes": (
        "Plain swap keeps the slot of a page that came back, and writes it again only if it has changed. A page that comes back leaves its"
        " block of the compressed swap, and is written again in any case. sort and sort x6 evict many pages that they have not changed."
    ),
    "large-cache": (
        "4 MB is 7 % of the budget. What sort swaps compresses to {ratio(sort)} and what xanim swaps to {ratio(xanim)}, so that the"
        " cache holds two to four times what it takes. For sort the rounds differ."
    ),
    "low-threshold": "A program that needs room waits for each write (rule 12). A small threshold makes more of them, each with fewer bytes.",
    "high-threshold-one": "The process waits for all of the writes, long or short. Long ones are fewer.",
    "hits-of-reads": (
        "Pages leave in runs of neighbours, and these programs ask for neighbours one after the other: a block that was read answers"
        " the next faults, too."
    ),
    "writes-for-reads": (
        "Nearly each page that leaves is written with either cache: few come back from a buffer that was not written yet."
    ),
    "high-threshold-several": "Seeks cost nothing here, and a device that writes answers reads as well: a long write keeps others little.",
}
