"""One run of one command in a fresh cgroup: result as a dict."""
import hashlib
import json
import os
import signal
import subprocess
import time

import host
from journal import kill_cgroup


def measure(bench, cmd, limit=None, timeout=300, meter_args=(), before_down=None, read_iops=None):
    """status: ok | oom | timeout | failed. Kills and removes all that the run leaves."""
    out = bench.out
    group = bench.cgroups.create(f"r{bench.next_run()}", bench.journal) if bench.cgroups else None
    paths = {k: f"{out}/run.{k}" for k in ("meter", "stdout", "stderr")}
    args = [f"{out}/bin/meter", "--out", paths["meter"], "--timeout", f"{timeout:.1f}", *meter_args]
    if group:
        if limit is not None:
            group.limit(limit)
        if read_iops:
            group.read_iops(out, read_iops)
        if bench.options.swappiness is not None:
            group.swappiness(bench.options.swappiness)
        for d in group.dirs.values():
            args += ["--join", d]
        args += ["--stat", group.stat, "--prefix", group.stat_prefix]
    if os.path.exists(paths["meter"]):
        os.unlink(paths["meter"])
    vm, disk, ticks, began = host.vmstat(), host.disk_bytes(bench.swap_device), host.cpu_ticks(), time.monotonic()
    with open(paths["stdout"], "wb") as so, open(paths["stderr"], "wb") as se:
        p = subprocess.Popen([*args, "--", *cmd], stdin=subprocess.DEVNULL, stdout=so, stderr=se, cwd=out,
                             env=bench.env, start_new_session=True)
        try:
            p.wait(timeout + 30)
        except BaseException as e:
            p.send_signal(signal.SIGTERM)
            try:
                p.wait(15)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
            if not isinstance(e, subprocess.TimeoutExpired):
                raise
    seconds, after = time.monotonic() - began, host.cpu_ticks()
    r = {"status": "failed"}
    try:
        with open(paths["meter"]) as f:
            r.update(json.load(f))
    except (OSError, ValueError):
        r.update(code=p.returncode, signal=0, timed_out=False)
    now = host.vmstat()
    r["swap_in_bytes"] = (now["pswpin"] - vm["pswpin"]) * 4096
    r["swap_out_bytes"] = (now["pswpout"] - vm["pswpout"]) * 4096
    r["zswap_in_bytes"] = (now.get("zswpin", 0) - vm.get("zswpin", 0)) * 4096
    r["zswap_out_bytes"] = (now.get("zswpout", 0) - vm.get("zswpout", 0)) * 4096
    if disk:
        d = host.disk_bytes(bench.swap_device)
        r["device_read_bytes"], r["device_written_bytes"] = d[0] - disk[0], d[1] - disk[1]
    if before_down:
        r.update(before_down())
    if group:
        r["left_behind"] = wait_empty(group)
        r.update(group.counters())
        kill_cgroup(group.memory)
        for e in reversed(group.entries):
            bench.journal.undo(e)
    if r.get("cpu_ns") is None and "rusage_user_us" in r:
        r["user_ns"], r["sys_ns"] = r["rusage_user_us"] * 1000, r["rusage_sys_us"] * 1000
        r["cpu_ns"] = r["user_ns"] + r["sys_ns"]
    if r.get("cpu_ns") is not None and seconds > 0:
        hz = os.sysconf("SC_CLK_TCK")
        r["other_cpus"] = round(max(0.0, ((after[0] - ticks[0]) / hz - r["cpu_ns"] / 1e9) / seconds), 3)
    with open(paths["stdout"], "rb") as f:
        r["output"] = hashlib.sha256(f.read()).hexdigest()[:16]
    with open(paths["stderr"], "rb") as f:
        r["stderr"] = f.read()[-800:].decode("utf-8", "replace").strip()
    if r.get("timed_out"):
        r["status"] = "timeout"
    elif r.get("oom_kills"):
        r["status"] = "oom"
    elif r.get("code") == 0:
        r["status"] = "ok"
    return r


def wait_empty(group, seconds=2.0):
    """Number of processes still there some time after the command has ended."""
    end = time.monotonic() + seconds
    while group.procs() and time.monotonic() < end:
        time.sleep(0.005)
    return len(group.procs())
