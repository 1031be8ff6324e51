"""What `memfit-papers` found, from docs/papers/simulated.json, by the names of the live numbers."""

import json

from .shape import VERDICTS


class Simulated:
    """The part of one paper; `own` gives the live names to numbers of a paper's names."""

    def __init__(self, part, seeds, own):
        self.part = part
        self.rounds = [own(self.of_seed(i, seeds)) for i in range(seeds)]
        recorded = own(part["recorded"]["numbers"])
        self.recorded = [recorded] if recorded else []

    def of_seed(self, i, seeds):
        """A single value is that of all seeds. A number that some seeds lack is left out."""
        numbers = self.part["numbers"].items()
        whole = [(name, v if isinstance(v, list) else [v] * seeds) for name, v in numbers]
        return {name: values[i] for name, values in whole if len(values) == seeds}

    def counts(self):
        return {v: sum(s["verdict"] == v for s in self.part["statements"]) for v in VERDICTS}


def load(path, modules):
    """By the name of the paper; nothing where there is no such file."""
    try:
        with open(path, encoding="utf-8") as f:
            saved = json.load(f)
    except FileNotFoundError:
        return {}
    parts = saved["papers"]
    return {m.NAME: Simulated(parts[m.NAME], saved["seeds"], m.own) for m in modules if m.NAME in parts}
