"""Statements about numbers: whether what a paper says holds here; signs and order of a table's numbers."""

from dataclasses import dataclass, field

PASS, FAIL, CANNOT = "PASS", "FAIL", "not reproducible"
COMPARE = {"<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b}


@dataclass(frozen=True)
class Statement:
    """`chain`: terms with comparisons between them. A term is a number, a name, "FACTOR * NAME", or a list of terms, each of
    which must keep the comparison. `cannot`: why this engine or machine cannot show it; then it is not judged."""

    name: str
    text: str
    source: str
    chain: tuple = ()
    cannot: str = ""


@dataclass(frozen=True)
class Column:
    """Published and own numbers side by side; `pivot` is what a sign is judged by (1 for a speedup)."""

    head: str
    key: str
    digits: int = 2
    pivot: float = None


@dataclass(frozen=True)
class Table:
    """A row a name; the number in a column has the name `key.format(row)`."""

    title: str
    source: str
    corner: str
    rows: tuple
    columns: tuple
    labels: dict = field(default_factory=dict)


def bounds(value):
    """Lowest and greatest of a number or a range."""
    return value if isinstance(value, (tuple, list)) else (value, value)


def middle(value):
    low, high = bounds(value)
    return (low + high) / 2


def term_value(term, numbers):
    """A list of (text, value) of a term; the value of what is not there is None."""
    if isinstance(term, (list, tuple)):
        return [pair for part in term for pair in term_value(part, numbers)]
    if not isinstance(term, str):
        return [(f"{term:g}", term)]
    factor, _, name = term.rpartition(" * ")
    if numbers.get(name) is None:
        return [(f"{term}: none", None)]
    low, high = (float(factor or 1) * x for x in bounds(numbers[name]))
    text = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
    return [(f"{term} = {text}", (low, high))]


def holds(chain, numbers):
    """(whether it does, the numbers as a text); None where what is there keeps it, but not all is there. Ranges must keep a
    comparison with all of their values."""
    values, operators = [term_value(term, numbers) for term in chain[::2]], chain[1::2]
    good = complete = True
    for left, sign, right in zip(values, operators, values[1:]):
        ascending = sign.startswith("<")
        for _, a in left:
            for _, b in right:
                if a is None or b is None:
                    complete = False
                else:
                    good &= COMPARE[sign](bounds(a)[ascending], bounds(b)[not ascending])
    texts = [", ".join(text for text, _ in pairs) for pairs in values]
    text = texts[0] + "".join(f" {sign} {t}" for sign, t in zip(operators, texts[1:]))
    return (None if good and not complete else good), text


def judge(statement, numbers, explained):
    """The verdict as a dict for JSON and Markdown."""
    out = {
        "name": statement.name,
        "text": statement.text,
        "source": statement.source,
        "verdict": CANNOT,
        "numbers": "",
        "explained": explained.get(statement.name, ""),
    }
    if statement.cannot:
        return {**out, "explained": statement.cannot}
    good, out["numbers"] = holds(statement.chain, numbers)
    if good is None:
        return {**out, "explained": out["explained"] or "a number is missing"}
    return {**out, "verdict": FAIL} if not good else {**out, "verdict": PASS, "explained": ""}


def signs(pairs, pivot):
    """(as published, of): on which side of the pivot published and own numbers are."""
    side = lambda v: (middle(v) > pivot) - (middle(v) < pivot)
    return sum(side(p) == side(o) for p, o in pairs), len(pairs)


def order(pairs):
    """(as published, of): pairs of rows whose published numbers differ, and how many stand in the same order here."""
    same = of = 0
    for i, (p, own) in enumerate(pairs):
        for q, other in pairs[:i]:
            if bounds(p)[0] <= bounds(q)[1] and bounds(q)[0] <= bounds(p)[1]:
                continue
            of += 1
            same += (middle(p) > middle(q)) == (own > other)
    return same, of


def compared(table, published, own):
    """For each column the signs and the order, of the rows that have both numbers."""
    out = []
    for column in table.columns:
        names = [column.key.format(row) for row in table.rows]
        pairs = [(published[n], own[n]) for n in names if published.get(n) is not None and own.get(n) is not None]
        out.append(
            {
                "column": column.head,
                "signs": signs(pairs, column.pivot) if column.pivot is not None else None,
                "order": order(pairs),
            }
        )
    return out
