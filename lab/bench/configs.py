"""The ways to run a program: unlimited, memfit, and the kernel's three."""
import os
import shutil
import struct
import time

import journal as jn
from host import Refused

ZSWAP = "/sys/module/zswap/parameters"
CONTROL = "/sys/class/zram-control"


class Unlimited:
    name, tuned, pool_ratio, meter_args = "unlimited", False, 0, []

    def __init__(self, bench):
        self.bench = bench

    def prepare(self):
        """Before the first limit is tuned or taken from the cache."""

    def up(self):
        pass

    def down(self):
        pass

    def label(self):
        return self.name


class Memfit(Unlimited):
    name = "memfit"

    def command(self, cmd, budget, stats):
        o = self.bench.options
        return [o.memfit, "run", "-m", f"{budget // 1024}K", "--stats", stats, "-q", *o.memfit_arg, "--", *cmd]


class SwapFile(Unlimited):
    """A plain swap file; the limit is the budget plus what the cgroup charges besides anonymous memory."""
    name, tuned = "swapfile", True

    def up(self):
        b = self.bench
        path = b.swapfile()
        jn.write(f"{ZSWAP}/enabled", "N") if os.path.exists(f"{ZSWAP}/enabled") else None
        jn.swapon(path)

    def down(self):
        jn.swapoff(self.bench.swap_path)


class Zswap(SwapFile):
    """zswap in front of the same swap file."""
    name, pool_ratio, meter_args, codec = "zswap", 0.35, ["--zswap"], None

    def prepare(self):
        """The codec is a part of the label, and so of the key of the tuned limit."""
        if self.codec is None:
            try:
                jn.write(f"{ZSWAP}/enabled", "Y")
                self.codec = self.choose()
            finally:
                jn.write(f"{ZSWAP}/enabled", "N")

    def up(self):
        path = self.bench.swapfile()
        jn.write(f"{ZSWAP}/enabled", "Y")
        jn.swapon(path)

    def choose(self):
        """The first codec that this kernel's crypto API has; the parameter is checked only once zswap is on."""
        for codec in self.bench.options.zswap_codec.split(","):
            try:
                jn.write(f"{ZSWAP}/compressor", codec)
            except OSError:
                continue
            if jn.read(f"{ZSWAP}/compressor") == codec:
                return codec
        raise Refused(f"zswap: none of {self.bench.options.zswap_codec} is in the kernel's crypto API")

    def down(self):
        super().down()
        jn.write(f"{ZSWAP}/enabled", "N")

    def label(self):
        return f"zswap ({self.codec or '?'})"


class Zram(Unlimited):
    """A zram device of our own as the only swap."""
    name, tuned, pool_ratio = "zram", True, 0.35
    device = entry = None

    def up(self):
        b = self.bench
        if os.path.exists(f"{CONTROL}/hot_add"):
            before = jn.zram_devices()
            self.entry = b.journal.add("zram", before=before)
            self.device = "zram" + jn.read(f"{CONTROL}/hot_add")
            self.entry["args"]["name"] = self.device
            b.journal.save()
        else:
            self.device = next((d for d in jn.zram_devices() if jn.read(f"/sys/block/{d}/initstate") == "0"), None)
            if not self.device:
                raise Refused("zram: no idle device and no hot_add")
            was = jn.read(f"/sys/block/{self.device}/comp_algorithm")
            self.entry = b.journal.add("zram_reset", name=self.device,
                                       algorithm=was.partition("[")[2].partition("]")[0])
        sys = f"/sys/block/{self.device}"
        codec = b.options.zram_codec
        if os.path.exists(f"{ZSWAP}/enabled"):
            jn.write(f"{ZSWAP}/enabled", "N")
        jn.write(f"{sys}/comp_algorithm", codec)
        if f"[{codec}]" not in jn.read(f"{sys}/comp_algorithm"):
            raise Refused(f"zram has no codec {codec}")
        jn.write(f"{sys}/disksize", b.swap_size)
        wait_for(f"/dev/{self.device}")
        swap_header(f"/dev/{self.device}", b.swap_size)
        jn.swapon(f"/dev/{self.device}")
        self.meter_args = ["--zram", f"{sys}/mm_stat"]

    def down(self):
        if self.entry:
            self.bench.journal.undo(self.entry)
            self.entry = None

    def counters(self):
        keys = ("orig_data_size", "compr_data_size", "mem_used_total", "mem_limit", "mem_used_max", "same_pages",
                "pages_compacted", "huge_pages", "huge_pages_since")
        text = jn.read(f"/sys/block/{self.device}/mm_stat") or ""
        return dict(zip(keys, map(int, text.split())))

    def label(self):
        return f"zram ({self.bench.options.zram_codec})"


ALL = {c.name: c for c in (Unlimited, Memfit, Zram, Zswap, SwapFile)}


def wait_for(path, seconds=5):
    end = time.monotonic() + seconds
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)


def swap_header(path, size):
    """What mkswap writes: version, last page, and the magic at the end of the first page."""
    page = os.sysconf("SC_PAGE_SIZE")
    first = bytearray(page)
    struct.pack_into("=III", first, 1024, 1, size // page - 1, 0)
    first[1036:1052] = os.urandom(16)
    first[-10:] = b"SWAPSPACE2"
    with open(path, "r+b") as f:
        f.write(first)
        f.flush()
        os.fsync(f.fileno())


def make_swapfile(path, size, journal):
    journal.add("swapfile", path=path)
    free = shutil.disk_usage(os.path.dirname(path)).free
    if free < size + (1 << 30):
        raise Refused(f"{path}: {size >> 20} MiB of swap would leave less than 1 GiB free on its disk")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
        os.fsync(fd)
    finally:
        os.close(fd)
    swap_header(path, size)


def available(names, options, root):
    """(usable names, {name: why not})."""
    use, skipped = [], {}
    for n in names:
        why = None
        if n == "memfit" and not (os.path.isfile(options.memfit) and os.access(options.memfit, os.X_OK)):
            why = f"no memfit binary at {options.memfit} (build it, or give --memfit PATH)"
        elif n in ("zram", "zswap", "swapfile") and not root:
            why = "needs root"
        elif n == "zram" and not (os.path.exists(f"{CONTROL}/hot_add") or jn.zram_devices()):
            why = "the kernel has no zram (modprobe zram?)"
        elif n == "zswap" and not os.path.exists(f"{ZSWAP}/enabled"):
            why = "the kernel has no zswap"
        if why:
            skipped[n] = why
        else:
            use.append(n)
    return use, skipped
