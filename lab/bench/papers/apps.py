"""Specifications of applications for programs/apps.c, and the files that they map."""

import os
import subprocess


def spec(ctx, name, rows):
    """Rows: name, KiB of anonymous data, mix, KiB of code at the start of the file, of the file, permille of random bytes in its
    media, permille of data and code that a trigger touches, random blocks of the code that a use touches for each 1000 that it has."""
    folder = f"{ctx.work}/{name}"
    os.makedirs(folder, exist_ok=True)
    text = "".join(" ".join(map(str, row)) + "\n" for row in rows)
    path = f"{folder}/spec"
    try:
        with open(path) as f:
            same = f.read() == text
    except OSError:
        same = False
    if not same:
        for index, (app, _, mix, code, kib, permille, *_) in enumerate(rows):
            if kib:
                subprocess.run(ctx.program("apps", "media", f"{folder}/{app}.media", index, code, kib, permille, mix), check=True)
        with open(path, "w") as f:
            f.write(text)
    return path
