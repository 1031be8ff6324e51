"""Files that appear whole or stay as they were."""
import json
import os


def write(path, text):
    with open(path + ".new", "w") as f:
        f.write(text)
    os.replace(path + ".new", path)


def write_json(path, value, **format):
    write(path, json.dumps(value, **format))


def write_between(path, name, lines):
    """Replaces what stands between the comments "NAME: begin" and "NAME: end" of a document."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    with open(path) as f:
        before, found, rest = f.read().partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{path} has no {begin} or no {end}")
    write(path, before + begin + "\n" + "\n".join(lines) + "\n" + end + after)
