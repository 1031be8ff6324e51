"""The Markdown table and the summary, from the result dict (schema: README.md)."""
import mapped
import scale
from stats import geomean, spread

MIB = 1 << 20
ROTATIONAL = {True: "rotational", False: "not rotational", None: "of unknown kind"}


def number(value, scale=1, digits=2):
    return "–" if value is None else f"{value / scale:.{digits}f}"


def with_spread(s, scale=1, digits=2):
    if not s:
        return "–"
    return f"{s['median'] / scale:.{digits}f} [{s['min'] / scale:.{digits}f}..{s['max'] / scale:.{digits}f}]"


def table(header, rows):
    out = ["| " + " | ".join(header) + " |", "|" + "|".join("---" if i == 0 else "---:" for i in range(len(header))) + "|"]
    return "\n".join(out + ["| " + " | ".join(str(c) for c in r) + " |" for r in rows])


def summarise(cell):
    """Medians over the rounds of one workload x budget x configuration."""
    good = [r for r in cell["rounds"] if r["status"] == "ok"]
    s = {k: spread([r.get(k) for r in good])
         for k in ("wall_ns", "cpu_ns", "user_ns", "sys_ns", "peak_total", "peak_resident", "peak_pool",
                   "disk_read_bytes", "disk_written_bytes", "other_cpus", "stats_peak_total")}
    cell["summary"] = s
    peak = s["peak_total"]
    if cell.get("budget_bytes") and peak:
        cell["peak_error"] = peak["median"] / cell["budget_bytes"] - 1
    return cell


def find(result, workload, budget, config):
    for c in result["cells"]:
        if (c["workload"], c["budget_pct"], c["config"]) == (workload, budget, config):
            return c
    return None


def good_wall(result, workload, budget, config, key="wall_ns"):
    """The median, if this configuration ran correctly and (where it is tuned) at the right peak."""
    c = find(result, workload, budget, config)
    if not c or c["status"] != "ok" or not c["summary"].get(key):
        return None
    return c["summary"][key]["median"]


def ratios(result):
    """Per workload and budget: memfit/zram, memfit/zswap, and min(zram, zswap)/memfit; their geometric mean."""
    rows, missing = [], []
    for w, b in sorted({(c["workload"], c["budget_pct"]) for c in result["cells"]}, key=order(result)):
        get = lambda c, k="wall_ns": good_wall(result, w, b, c, k)
        m, rivals = get("memfit"), [x for x in (get("zram"), get("zswap")) if x]
        row = {"workload": w, "budget_pct": b}
        for rival in ("zram", "zswap", "swapfile", "unlimited"):
            row[f"memfit_over_{rival}"] = m / get(rival) if m and get(rival) else None
        row["best_rival_over_memfit"] = min(rivals) / m if m and rivals else None
        c, rc = get("memfit", "cpu_ns"), [x for x in (get("zram", "cpu_ns"), get("zswap", "cpu_ns")) if x]
        row["best_rival_over_memfit_cpu"] = min(rc) / c if c and rc else None
        if row["best_rival_over_memfit"] is None:
            missing.append(f"{w} at {b} %")
        rows.append(row)
    return {"rows": rows, "missing": missing, "of": len(rows),
            "geomean_best_rival_over_memfit": geomean([r["best_rival_over_memfit"] for r in rows]),
            "geomean_best_rival_over_memfit_cpu": geomean([r["best_rival_over_memfit_cpu"] for r in rows])}


def order(result):
    names = result["workloads"]
    return lambda wb: (names.index(wb[0]), -wb[1])


def clusters(options):
    own = options.get("page_cluster") or {}
    return f" ({', '.join(f'{k} {v}' for k, v in own.items())})" if own else ""


def facts_text(result):
    f, o = result["facts"], result["options"]
    disk = f["disk"]
    lines = [
        f"- {f['cpu']}, {f['cpus']} CPUs{', virtual' if f['virtualised'] else ''}, "
        f"{number(f['ram_bytes'], 1 << 30, 1)} GiB RAM, Linux {f['kernel']}; load {f['loadavg_at_start']} at start",
        f"- disk {disk['device']} ({disk['filesystem']}, {ROTATIONAL[disk['rotational']]}); "
        f"THP {f['thp']}; swappiness {f['swappiness']}, page-cluster {f['page_cluster']}{clusters(o)}; cgroup v{result['cgroup_version']}",
        f"- zram codec {result['zram_codec'] or '–'}, zswap codec {result['zswap_codec'] or '–'}; memfit: {f['memfit'] or 'missing'}",
        f"- {o['rounds']} alternating rounds, budgets in % of the natural peak, tolerance {o['tolerance'] * 100:g} %, "
        f"run limit {o['run_timeout']:g} s",
    ]
    lines += [f"- **note**: {n}" for n in result["notes"]]
    return "\n".join(lines)


def status_text(cell):
    if cell["status"] == "ok":
        return "" if cell["summary"].get("wall_ns") else "not run"
    t = cell.get("tuning")
    if t and not cell["rounds"] and cell["status"] in ("infeasible", "timeout", "off") and t.get("peak"):
        return f"{cell['status']}: peak {t['peak'] / MIB:.0f} MiB at limit {t['limit'] / MIB:.0f}"
    return cell["status"] + (f": {cell['why']}" if cell.get("why") else "")


def markdown(result):
    out = ["# Bench: equal total memory", "", facts_text(result), ""]
    if not result["complete"]:
        out += ["**Incomplete: the bench was stopped.**", ""]
    out += ["Wall: median [min..max] over the rounds. CPU: whole tree, user + sys. Peak: anonymous + shared "
            "memory + compressed pool, MiB, sampled from outside. Disk: bytes swapped to and from disk, MiB.", ""]
    keys = sorted({(c["workload"], c["budget_pct"]) for c in result["cells"]}, key=order(result))
    for w, b in keys:
        cells = [c for c in result["cells"] if (c["workload"], c["budget_pct"]) == (w, b)]
        n = result["natural"][w]
        budget = next((c["budget_bytes"] for c in cells if c.get("budget_bytes")), None)
        out += [f"## {result['titles'].get(w, w)} at {b} %",
                f"`{w}`, natural peak {n['peak_total'] / MIB:.0f} MiB, budget {number(budget, MIB, 0)} MiB", ""]
        rows = []
        for c in cells:
            s = c["summary"]
            rows.append([
                c["label"], with_spread(s["wall_ns"], 1e9), number(s["cpu_ns"] and s["cpu_ns"]["median"], 1e9),
                number(s["user_ns"] and s["user_ns"]["median"], 1e9), number(s["sys_ns"] and s["sys_ns"]["median"], 1e9),
                number(s["peak_total"] and s["peak_total"]["median"], MIB, 1),
                f"{c['peak_error'] * 100:+.1f} %" if c.get("peak_error") is not None and c["config"] != "unlimited" else "–",
                number(s["disk_read_bytes"] and s["disk_read_bytes"]["median"], MIB, 0),
                number(s["disk_written_bytes"] and s["disk_written_bytes"]["median"], MIB, 0), status_text(c)])
        out += [table(["configuration", "wall s", "CPU s", "user", "sys", "peak MiB", "of budget", "disk read",
                       "written", "remark"], rows), ""]
    r = result["ratios"]
    out += ["## Ratios of median wall times", "",
            table(["workload", "budget", "memfit/zram", "memfit/zswap", "memfit/swapfile", "memfit/unlimited",
                   "best of zram, zswap / memfit"],
                  [[x["workload"], f"{x['budget_pct']} %", *(number(x[k]) for k in (
                      "memfit_over_zram", "memfit_over_zswap", "memfit_over_swapfile", "memfit_over_unlimited",
                      "best_rival_over_memfit"))] for x in r["rows"]]), ""]
    g = r["geomean_best_rival_over_memfit"]
    out += [f"Geometric mean of min(zram, zswap)/memfit over {r['of'] - len(r['missing'])} of {r['of']} rows: "
            f"**{number(g)}** (CPU time {number(r['geomean_best_rival_over_memfit_cpu'])}); above 1 memfit is faster."]
    if r["missing"]:
        out += [f"Not in the mean, for want of a valid pair: {', '.join(r['missing'])}."]
    return "\n".join(out) + "\n"


def below_markdown(result):
    out = ["# Bench: below budget", "", facts_text(result), ""]
    if not result["complete"]:
        out += ["**Incomplete: the bench was stopped.**", ""]
    rows = []
    for c in result["below"]:
        cell = [c["command"], c["pairs"], number(c["plain_cpu"] and c["plain_cpu"]["median"], 1e9, 3),
                number(c["memfit_cpu"] and c["memfit_cpu"]["median"], 1e9, 3)]
        for k in ("cpu", "wall"):
            x = c[k]
            cell.append(f"{x['ratio']:.4f} [{x['low95']:.4f}..{x['high95']:.4f}]" if x else "–")
        rows.append(cell + [c["why"] or ""])
    out += ["Ratio memfit/plain: geometric mean over interleaved pairs with its 95 % bootstrap interval. CPU: "
            f"{result['cpu_source']}.", "",
            table(["command", "pairs", "plain CPU s", "memfit CPU s", "CPU ratio", "wall ratio", "remark"], rows), ""]
    s = result.get("startup")
    if s:
        out += [f"Start-up, {s['count']} x `{s['command']}` from a shell loop, {s['repeats']} repeats:", "",
                table(["", "ms per process", "ms for the empty loop"],
                      [[n, with_spread(s[n]["per_process_ms"], 1, 3), with_spread(s[n]["empty_loop_ms"], 1, 2)]
                       for n in ("plain", "memfit") if s.get(n)]), ""]
        if s.get("extra_ms_per_process") is not None:
            out += [f"Extra per process: **{s['extra_ms_per_process']:.3f} ms**; per `memfit run`: "
                    f"{s['extra_ms_per_run']:.2f} ms."]
    return "\n".join(out) + "\n"


def scale_markdown(result):
    out = ["# Bench: scale", "", facts_text(result), ""]
    if not result["complete"]:
        out += ["**Incomplete: the bench was stopped.**", ""]
    out += [f"What memfit adds to the run at {scale.BUDGET_PCT} % of the natural peak, divided by its page faults: median "
            f"[min..max] over the rounds. CPU: {result['cpu_source']}. Ratio: CPU time over that of the first point of "
            "its kind.", ""]
    rows = []
    for point, cpu, wall, ratio in scale.summary(result["scale"]):
        faults = spread([r["faults"] for r in point["rounds"]])
        rows.append([f"{point['value']} {point['kind']}", point["mib"], number(faults and faults["median"], 1000, 0),
                     with_spread(cpu, 1000, 1), with_spread(wall, 1000, 1), number(ratio, 1, 2), point["why"]])
    out += [table(["point", "MiB in all", "thousand faults", "CPU us a fault", "elapsed us a fault", "ratio", "remark"],
                  rows)]
    return "\n".join(out) + "\n"


def files_markdown(result):
    out = ["# Bench: files that programs map", "", facts_text(result), ""]
    if not result["complete"]:
        out += ["**Incomplete: the bench was stopped.**", ""]
    iops = result["options"].get("read_iops")
    limit = f" The disk gives {iops} read operations a second." if iops else ""
    out += [f"Cold runs at the same total memory: median [min..max] over the rounds.{limit} CPU: {result['cpu_source']}. "
            "Peak: the control group's, with page cache.", ""]
    rows = []
    for point, name, got in mapped.summary(result["files"]):
        rows.append([f"{point['data']}, {point['order']}", point["mib"], point["budget_bytes"] // (1 << 20), name,
                     with_spread(got["wall_ns"], 1e9, 1), with_spread(got["cpu_ns"], 1e9, 1),
                     with_spread(got["io_read"], 1 << 20, 0), with_spread(got["charged_peak"], point["budget_bytes"] / 100, 1),
                     point["why"]])
    out += [table(["data, order", "MiB", "budget, MiB", "", "wall s", "CPU s", "MiB read", "peak, % of budget", "remark"], rows)]
    return "\n".join(out) + "\n"
