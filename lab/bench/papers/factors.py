"""The 2^3 factorial of Tuduce and Gross: which of CF, block and zone size the times depend on. Table 7 and Table 8."""

from itertools import product

FACTORS = ("CF", "block", "zone")
# Low and high level as printed, and here: zones a sixteenth would be too small for the engine.
PRINTED = {"CF": (4, 14), "block": (64, 1024), "zone": (2, 8)}
HERE = {"CF": (4, 14), "block": (64, 1024), "zone": (256, 1024)}
KEYS = {"CF": "pool.entries_per_frame", "block": "pool.block_bytes", "zone": "pool.zone_kib"}
# An area is looked at after some time and stores: at a sixteenth of the size after a sixteenth.
LOOKS = ("sizing.check_ms=62", "sizing.check_stores=64")
GRID = tuple(product((-1, 1), repeat=3))
EFFECTS = ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))

# Table 7, seconds: by size; rows CF 4 and 14; columns (2 MB, 64 B), (2 MB, 1024 B), (8 MB, 64 B), (8 MB, 1024 B).
TABLE7 = {
    "1.3": ((245.30, 258.30, 688.96, 165.64), (147.38, 253.49, 144.51, 152.63)),
    "1.7": ((2229.04, 1796.98, 2803.01, 552.47), (595.96, 1980.51, 551.54, 660.04)),
    "1.9": ((7351.71, 5479.42, 4395.01, 888.60), (954.99, 6354.63, 872.34, 973.74)),
    "2.6": ((7721.11, 6340.01, 3688.07, 1055.76), (1116.68, 7380.94, 981.45, 1092.29)),
}
# Table 8, percent, in the order of EFFECTS.
TABLE8 = {
    "1.3": (23.61, 8.51, 3.31, 21.14, 11.2, 21.81, 10.42),
    "1.7": (27.91, 3.06, 8.96, 37.69, 1.04, 20.70, 0.64),
    "1.9": (18.50, 0.00, 39.03, 27.29, 1.00, 11.08, 3.10),
    "2.6": (13.13, 1.08, 47.99, 20.90, 1.62, 10.62, 4.65),
}


def effect_name(effect):
    return "all three" if len(effect) == 3 else "+".join(FACTORS[i] for i in effect)


def label(levels):
    return "grid-" + "-".join(str(HERE[f][l > 0]) for f, l in zip(FACTORS, levels))


def overrides(levels):
    return (*LOOKS, *(f"{KEYS[f]}={HERE[f][l > 0]}" for f, l in zip(FACTORS, levels)))


def printed(size):
    """Table 7 by levels."""
    rows = TABLE7[size]
    return {(cf, block, zone): rows[cf > 0][(block > 0) + 2 * (zone > 0)] for cf, block, zone in GRID}


def shares(times):
    """Percent of the variation that each effect explains: q = (1/8) sum of sign * time, share = q^2 / the sum of all seven."""
    squares = []
    for effect in EFFECTS:
        q = 0.0
        for levels, t in times.items():
            sign = 1
            for i in effect:
                sign *= levels[i]
            q += sign * t / 8
        squares.append(q * q)
    total = sum(squares)
    return [100 * x / total if total else 0.0 for x in squares]


def check():
    """Table 8 from Table 7: (lines to print, whether each number is the printed one or one off in its last digit)."""
    lines, good = ["| effect | " + " | ".join(f"{s} GB" for s in TABLE7) + " |", "|---" * (len(TABLE7) + 1) + "|"], True
    got = {size: shares(printed(size)) for size in TABLE7}
    for i, effect in enumerate(EFFECTS):
        row = []
        for size in TABLE7:
            same = abs(got[size][i] - TABLE8[size][i]) < 0.015 + 1e-9
            good &= same
            row.append(f"{got[size][i]:.2f} ({TABLE8[size][i]:.2f}){'' if same else ' !'}")
        lines.append(f"| {effect_name(effect)} | " + " | ".join(row) + " |")
    return lines, good
