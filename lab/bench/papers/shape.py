"""Statements about numbers: whether what a paper says holds here; signs and order of a table's numbers."""

import re
from dataclasses import dataclass, field
from math import comb
from statistics import median

# The verdicts of memfit-papers, by the same words.
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
PUT_IN, MISSING, CANNOT = "put in", "not implemented", "cannot be had"
VERDICTS = (HOLDS, FAILS, UNDECIDED, PUT_IN, MISSING, CANNOT)
# The least and the greatest of 7 values have the median between them in 98 of 100 cases.
ROUNDS = 7
COMPARE = {"<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b}


@dataclass(frozen=True)
class Statement:
    """`chain`: terms with comparisons between them. A term is a number, a name, "FACTOR * NAME", or a list of terms, each of
    which must keep the comparison. `put_in`: why it says nothing when it holds. `missing`: what memfit lacks for it, and
    `cannot`: why this machine cannot show it; then it is not judged."""

    name: str
    text: str
    source: str
    chain: tuple = ()
    put_in: str = ""
    missing: str = ""
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


def medians(rounds):
    """Of each number the median of the rounds that have it; None if none has."""
    names = {name: None for numbers in rounds for name in numbers}
    for name in names:
        got = [numbers[name] for numbers in rounds if numbers.get(name) is not None]
        names[name] = median(map(middle, got)) if len(got) > 1 else got[0] if got else None
    return names


def extent(rounds, name):
    """Least and greatest of a number over the rounds; None if none has it."""
    got = [bounds(numbers[name]) for numbers in rounds if numbers.get(name) is not None]
    return (min(low for low, _ in got), max(high for _, high in got)) if got else None


def term_value(term, numbers):
    """The value of a single term; None if it is not there."""
    if not isinstance(term, str):
        return term
    factor, _, name = term.rpartition(" * ")
    if numbers.get(name) is None:
        return None
    return tuple(float(factor or 1) * x for x in bounds(numbers[name]))


def term_text(term, rounds):
    """A term with its median, least and greatest value."""
    if isinstance(term, (list, tuple)):
        return ", ".join(term_text(part, rounds) for part in term)
    if not isinstance(term, str):
        return f"{term:g}"
    factor, _, name = term.rpartition(" * ")
    got = extent(rounds, name)
    if got is None:
        return f"{term}: none"
    low, high = (float(factor or 1) * x for x in got)
    if low == high:
        return f"{term} = {low:.3g}"
    if len(rounds) == 1:
        return f"{term} = {low:.3g} to {high:.3g}"
    return f"{term} = {float(factor or 1) * medians(rounds)[name]:.3g} [{low:.3g}..{high:.3g}]"


def chain_text(chain, rounds):
    texts = [term_text(term, rounds) for term in chain[::2]]
    return texts[0] + "".join(f" {sign} {text}" for sign, text in zip(chain[1::2], texts[1:]))


def comparisons(chain):
    """The comparisons of single terms that a chain stands for: (left, sign, right)."""
    flat = lambda term: [t for part in term for t in flat(part)] if isinstance(term, (list, tuple)) else [term]
    for left, sign, right in zip(chain[::2], chain[1::2], chain[2::2]):
        yield from ((a, sign, b) for a in flat(left) for b in flat(right))


def keeps(comparison, numbers):
    """Whether the numbers keep a comparison; None if one is missing. Ranges must keep it with all of their values."""
    left, sign, right = comparison
    a, b = term_value(left, numbers), term_value(right, numbers)
    ascending = sign.startswith("<")
    return None if a is None or b is None else COMPARE[sign](bounds(a)[ascending], bounds(b)[not ascending])


def holds(chain, numbers):
    """Whether it does; None where what is there keeps it, but not all is there."""
    marks = [keeps(comparison, numbers) for comparison in comparisons(chain)]
    return False if False in marks else None if None in marks else True


def dissenters(rounds):
    """How many of so many rounds may say otherwise: the greatest number of which chance alone, with even odds, gives as few or
    fewer on either side in less than 5 of 100 cases. -1: none, and so many rounds decide nothing (fewer than 6)."""
    tail, most = 0, -1
    for k in range(rounds // 2 + 1):
        tail += comb(rounds, k) / 2**rounds
        if 2 * tail >= 0.05:
            break
        most = k
    return most


def decide(marks):
    """What the rounds say of one comparison, of those in which it can be judged: True, False, or None."""
    yes, no = marks.count(True), marks.count(False)
    allowed = dissenters(yes + no)
    return True if no <= allowed else False if yes <= allowed else None


def judged_chain(chain, rounds):
    """It holds if all of its comparisons do, and does not if one is decided against it. A statement with many comparisons is
    therefore more easily denied by chance than it is confirmed."""
    all_marks = [[keeps(comparison, numbers) for numbers in rounds] for comparison in comparisons(chain)]
    decided = [decide(marks) for marks in all_marks]
    return FAILS if False in decided else HOLDS if all(decided) else UNDECIDED


def filled(text, rounds):
    """An explanation with the numbers of this result: {NAME} or {NAME:DIGITS} stands for the median of a number."""
    numbers = medians(rounds)

    def value(match):
        name, digits = match.groups()
        got = numbers.get(name)
        return "?" if got is None else f"{middle(got):.{digits or 2}f}"

    return re.sub(r"\{([^{}:]+)(?::(\d))?\}", value, text)


def judge(statement, rounds, explained):
    """The verdict as a dict for JSON and Markdown; `rounds` are the numbers of each round."""
    out = {
        "name": statement.name,
        "text": statement.text,
        "source": statement.source,
        "verdict": CANNOT,
        "numbers": chain_text(statement.chain, rounds) if statement.chain else "",
        "agree": "",
        "explained": filled(explained.get(statement.name, ""), rounds),
    }
    for verdict, why in ((MISSING, statement.missing), (CANNOT, statement.cannot)):
        if why:
            return {**out, "verdict": verdict, "explained": why}
    marks = [mark for mark in (holds(statement.chain, numbers) for numbers in rounds) if mark is not None]
    if not marks:
        return {**out, "explained": out["explained"] or "a number is missing"}
    out["verdict"], out["agree"] = judged_chain(statement.chain, rounds), f"{marks.count(True)} of {len(marks)}"
    if out["verdict"] == HOLDS and statement.put_in:
        out |= {"verdict": PUT_IN, "explained": " ".join(filter(None, (statement.put_in, out["explained"])))}
    return out


def signs(pairs, pivot):
    """(as published, of): on which side of the pivot published and own numbers are."""
    side = lambda v: (middle(v) > pivot) - (middle(v) < pivot)
    return sum(side(p) == side(o) for p, o in pairs), len(pairs)


def order(pairs):
    """(as published, of): pairs of rows whose published numbers differ, and how many stand in the same order here. Own numbers
    that are a percent apart, or less, stand in none."""
    same = of = 0
    for i, (p, own) in enumerate(pairs):
        for q, other in pairs[:i]:
            if bounds(p)[0] <= bounds(q)[1] and bounds(q)[0] <= bounds(p)[1]:
                continue
            of += 1
            a, b = middle(own), middle(other)
            if abs(a - b) > 0.01 * max(abs(a), abs(b)):
                same += (middle(p) > middle(q)) == (a > b)
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
