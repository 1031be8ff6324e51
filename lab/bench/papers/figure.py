"""The figure of a paper: what it prints, what came out live, simulated and from recordings, one row a number, as SVG."""

import math
from dataclasses import dataclass
from statistics import median
from xml.sax.saxutils import escape

from .shape import bounds, middle

WIDTH, LABELS, ROW, TOP, BOTTOM, MARGIN = 860, 300, 30, 64, 46, 24
INK, GRID = "#24292f", "#d0d7de"
COLOURS = {"published": INK, "live": "#0969da", "simulated": "#bc4c00", "recorded": "#1a7f37"}


@dataclass(frozen=True)
class Figure:
    """`rows`: label, name of a number, and that of the one it is divided by, or None. All on one logarithmic axis."""

    title: str
    axis: str
    rows: tuple


def row_values(row, rounds):
    """(median, least, greatest) of a row's number over the rounds; None without any above 0."""
    _, above, below = row
    got = []
    for numbers in rounds:
        a, b = numbers.get(above), numbers.get(below) if below else 1
        if a is not None and b:
            got.append(tuple(x / middle(b) for x in bounds(a)))
    got = [pair for pair in got if pair[0] > 0]
    if not got:
        return None
    return median(map(middle, got)), min(low for low, _ in got), max(high for _, high in got)


def draw(figure, published, live, simulated=(), recorded=()):
    """Own numbers are lists of rounds. Rows without own numbers are left out; None if there is no row."""
    sources = {"published": [published], "live": live, "simulated": simulated, "recorded": recorded}
    rows = []
    for row in figure.rows:
        values = {name: row_values(row, rounds) for name, rounds in sources.items()}
        if any(values[name] for name in sources if name != "published"):
            rows.append((row[0], values))
    if not rows:
        return None
    ends = [x for _, values in rows for v in values.values() if v for x in v[1:]] + [1]
    place = scale(min(ends), max(ends))
    height = TOP + ROW * len(rows) + BOTTOM
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
        f"<title>{escape(figure.title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        text(MARGIN, 22, figure.title, weight="bold"),
        *legend(),
        *grid(place, min(ends), max(ends), height),
        text((LABELS + WIDTH - MARGIN) / 2, height - 8, figure.axis, anchor="middle"),
    ]
    for i, (label, values) in enumerate(rows):
        y = TOP + ROW * i + ROW / 2
        out.append(text(LABELS - 10, y + 4, label, anchor="end"))
        for shift, (name, value) in zip((-9, -3, 3, 9), values.items()):
            if value:
                out += mark(name, place, value, y + shift)
    return "\n".join([*out, "</svg>", ""])


def scale(low, high):
    """Places on a logarithmic axis with some room on both sides."""
    low, high = math.log(low) - 0.15, math.log(high) + 0.15
    width = WIDTH - LABELS - MARGIN
    return lambda x: LABELS + (math.log(x) - low) / (high - low) * width


def ticks(low, high):
    """1, 2 and 5 of each decade, or powers of ten if those are too many."""
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1,)):
        got = [d * 10.0**e for e in decades for d in digits if low * 0.87 <= d * 10.0**e <= high * 1.15]
        if len(got) <= 12:
            break
    return got


def grid(place, low, high, height):
    out = []
    for x in ticks(low, high):
        width = 1.6 if x == 1 else 0.8
        out.append(
            f'<line x1="{place(x):.1f}" y1="{TOP - 6}" x2="{place(x):.1f}" y2="{height - BOTTOM + 4}"'
            f' stroke="{INK if x == 1 else GRID}" stroke-width="{width}"/>'
        )
        out.append(text(place(x), height - BOTTOM + 18, f"{x:g}", anchor="middle"))
    return out


def mark(name, place, value, y):
    """A line from the least to the greatest value, and a mark at the median."""
    x, low, high = map(place, value)
    colour = COLOURS[name]
    out = []
    if high - low > 1:
        out.append(
            f'<line x1="{low:.1f}" y1="{y:.1f}" x2="{high:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="2"/>'
        )
    return [*out, shape(name, x, y)]


def shape(name, x, y):
    colour = COLOURS[name]
    if name == "published":
        points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in ((-5, 0), (0, -5), (5, 0), (0, 5)))
        return f'<polygon points="{points}" fill="#ffffff" stroke="{colour}" stroke-width="1.5"/>'
    if name == "live":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    if name == "recorded":
        points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in ((-4.5, 4), (0, -4.5), (4.5, 4)))
        return f'<polygon points="{points}" fill="{colour}"/>'
    return f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7" fill="{colour}"/>'


def legend():
    out, x = [], LABELS
    for name in COLOURS:
        out += [shape(name, x + 6, 42), text(x + 16, 46, name)]
        x += 100
    return [*out, text(x, 46, "lines: least to greatest")]


def text(x, y, words, anchor="start", weight="normal"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="{INK}">{escape(words)}</text>'
