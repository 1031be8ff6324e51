"""Numbers: medians with spread, geometric mean, bootstrap intervals."""
import math
import random
import statistics


def spread(values):
    """Median, least and greatest of the values that are there; None without any."""
    values = [v for v in values if v is not None]
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def geomean(values):
    values = [v for v in values if v is not None and v > 0]
    if not values:
        return None
    return math.exp(sum(map(math.log, values)) / len(values))


def paired_ratio(plain, managed, resamples=10_000, seed=1):
    """Geometric mean of managed/plain over pairs, with a 95 % percentile bootstrap over the pairs."""
    if len(plain) != len(managed) or not plain:
        raise ValueError("pairs are needed")
    logs = [math.log(m / p) for p, m in zip(plain, managed)]
    low, high = bootstrap(logs, lambda s: math.fsum(s) / len(s), resamples, seed)
    return {"ratio": math.exp(math.fsum(logs) / len(logs)), "low95": math.exp(low), "high95": math.exp(high),
            "median": math.exp(statistics.median(logs)), "pairs": len(logs)}


def bootstrap(values, statistic, resamples=10_000, seed=1, level=0.95):
    """Percentile interval of a statistic; the seed makes it repeatable."""
    rng = random.Random(seed)
    got = sorted(statistic(rng.choices(values, k=len(values))) for _ in range(resamples))
    tail = (1 - level) / 2
    return got[int(tail * (resamples - 1))], got[math.ceil((1 - tail) * (resamples - 1))]
