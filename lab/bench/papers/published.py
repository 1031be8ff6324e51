"""The values that the papers print: the files of lab/published."""
import os
import tomllib

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "published")


def load(paper):
    """Value, or (low, high), by name."""
    with open(f"{FOLDER}/{paper}.toml", "rb") as file:
        tables = tomllib.load(file)
    named = ((name, value) for table in tables.values() for name, value in table.items())
    return {name: tuple(value) if isinstance(value, list) else value for name, value in named}


def renamed(numbers, own_name):
    """By the name that `own_name` gives; without those of which it makes None."""
    named = ((own_name(name), value) for name, value in numbers.items())
    return {name: value for name, value in named if name}
