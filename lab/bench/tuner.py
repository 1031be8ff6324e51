"""Finds the cgroup limit at which limit + pool peaks at the budget.

The peak is taken to grow with the limit (each page that the limit pushes out
costs less in the pool than it did in memory), with noise. Secant steps kept
inside the bracket found so far; every trial is a run of the whole workload, so
there are few of them.
"""
from dataclasses import dataclass, field

PAGE = 4096


@dataclass
class Trial:
    limit: int
    peak: int | None
    status: str = "ok"  # ok | oom | timeout | failed
    detail: dict = field(default_factory=dict)


@dataclass
class Tuned:
    status: str  # ok | infeasible | timeout | failed | off
    limit: int | None
    peak: int | None
    trials: list = field(default_factory=list)


def off(error, tolerance, tuned):
    """Whether a peak is too far from the budget, by peak / budget - 1: above it, and where the limit was tuned also below it."""
    return abs(error) > tolerance if tuned else error > tolerance


def first_guess(budget, natural, pool_ratio):
    """Solve limit + ratio * (natural - limit) = budget."""
    if pool_ratio <= 0:
        return budget
    return int((budget - pool_ratio * natural) / (1 - pool_ratio))


def tune(run, budget, natural, pool_ratio=0.0, tolerance=0.02, max_runs=8):
    """run(limit) -> Trial. Stops at half the tolerance, or takes the best within it after max_runs."""
    floor, ceiling = int(budget * 0.15), int(max(natural, budget) * 1.25)
    trials, low, high = [], None, None
    x = first_guess(budget, natural, pool_ratio)
    slope = 1 - min(pool_ratio, 0.8)

    def result(status, t=None):
        return Tuned(status, t.limit if t else None, t.peak if t else None, trials)

    def best(among):
        return min(among, key=lambda t: abs(t.peak - budget), default=None)

    while len(trials) < max_runs:
        x = max(floor, min(ceiling, x)) // PAGE * PAGE
        if any(t.limit == x for t in trials):
            break
        t = run(x)
        trials.append(t)
        if t.status == "failed":
            return result("failed", t)
        if t.status == "oom":
            low = x
            if t.peak and t.peak > budget * (1 + tolerance):
                return result("infeasible", t)  # a lower limit would be killed too, a higher one peaks higher
            if x >= ceiling // PAGE * PAGE:
                return result("failed", t)
            x = (x + high) // 2 if high else int(x * 1.3)
            continue
        error = t.peak - budget
        if t.status == "timeout" and error >= -tolerance * budget:
            return result("timeout", t)  # a lower limit would only be slower
        if t.status == "ok" and abs(error) <= tolerance / 2 * budget:
            return result("ok", t)
        if error > 0:
            high = x if high is None else min(high, x)
            if x <= floor:
                return result("infeasible", t)
        else:
            low = x if low is None else max(low, x)
        done = [t for t in trials if t.peak is not None and t.status != "oom"]
        if len(done) >= 2:
            a, b = sorted(done, key=lambda t: abs(t.peak - budget))[:2]
            if a.limit != b.limit:
                slope = max(0.1, min(1.5, (a.peak - b.peak) / (a.limit - b.limit)))
            x = a.limit - (a.peak - budget) / slope
        else:
            x -= error / slope
        if low is not None and high is not None and low < high and not low < x < high:
            x = (low + high) // 2
        x = int(x)
    good = best([t for t in trials if t.status == "ok"])
    if good and abs(good.peak - budget) <= tolerance * budget:
        return result("ok", good)
    return result("off", good or best([t for t in trials if t.peak is not None]))
