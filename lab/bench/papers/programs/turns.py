"""turns.py TURNS PERMILLE FOLDER [NAME,..]: real programs that stay alive are triggered in turns, each once a turn, in a new random
order. Each keeps so many permille of its records: text that repeats a field beside random digits, or rows of random numbers. A
trigger has it touch two fifths of its blocks of 32 records, the same each time, and its use then a tenth of the others, another
tenth each turn. It compares the beginning and the end of each record that it touches, and all of all records at the end.

The first trigger starts a program. So does the next one after the pager has killed it, and that counts in the time of the entry, as
on a telephone. The pager is told, as `memfit bg -w` and `memfit fg` do, when a program leaves the foreground and when it comes
back. FOLDER: for the compiled program and a socket. turns.py check: says which programs are missing here.

A program gets the number of its records, and writes k when it has them. It reads lines: "r TURN" is a trigger, "u TURN" a use, both
answered by the letter; "q 0" compares all and ends."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "turns")
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
# Records of about 1152 bytes, by the sizes of the paper's categories: games, browsers, media, utilities.
GAME, BROWSER, MEDIA, UTILITY = 26000, 17300, 15000, 9700
# How long a program stays in the foreground, seconds.
DWELL = 0.1
PATIENCE = 60


class Killed(Exception):
    """The pager has killed it."""


class Program:
    """A program that speaks by lines."""

    def __init__(self, name, records, *command):
        self.name, self.records, self.command = name, records, command
        self.process = None

    def present(self):
        return shutil.which(self.command[0])

    def prepare(self, folder):
        self.folder = folder

    def arguments(self, count):
        return (*self.command, str(count))

    def start(self, count):
        self.process = subprocess.Popen(self.arguments(count), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=HERE)
        self.hear("k")

    def say(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.ended()

    def hear(self, wanted):
        self.answered(self.process.stdout.readline().decode().strip(), wanted)

    def answered(self, got, wanted):
        if got == "wrong":
            sys.exit(f"MISMATCH: {self.name}")
        if got != wanted:
            self.ended(got)

    def ended(self, said=""):
        """Raises Killed if it was."""
        status = self.process.wait(PATIENCE)
        self.process = None
        if status != -signal.SIGKILL:
            sys.exit(f"{self.name} ended with status {status} {said}")
        raise Killed

    def ask(self, what, turn):
        self.say(f"{what} {turn}")
        self.hear(what)

    def quit(self):
        self.say("q 0")
        self.process.stdin.close()
        if status := self.process.wait(PATIENCE):
            raise Killed if status == -signal.SIGKILL else SystemExit(f"{self.name} ended with status {status}")


class Java(Program):
    def present(self):
        return super().present() and shutil.which("javac")

    def prepare(self, folder):
        super().prepare(folder)
        if not os.path.exists(f"{folder}/Turns.class"):
            subprocess.run(["javac", "-d", folder, f"{HERE}/Turns.java"], check=True)

    def arguments(self, count):
        return (self.command[0], "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", self.folder, "Turns", str(count))


class Awk(Program):
    def arguments(self, count):
        return (self.command[0], "-v", f"n={count}", "-f", "awk.awk")


# In SQL: the numbers after a record's first, its text, and whether a block is touched by each trigger.
FIRST = "((i * 48271 + 11) % 2147483647 * 16807 % 2147483647)"
TEXT = (
    f"(WITH RECURSIVE g(j, x) AS (VALUES(0, {FIRST}) UNION ALL SELECT j + 1, x * 16807 % 2147483647 FROM g WHERE j < 63)"
    f" SELECT group_concat(printf('%08x-field-%02d;', x, j), '') FROM g) || printf('%08x', {FIRST})"
)
HOT = "i / 32 * 7919 % 1000 < 400"


class Sqlite(Program):
    """A database in memory."""

    def arguments(self, count):
        return (self.command[0], "-batch", "-init", os.devnull, ":memory:")

    def start(self, count):
        # -batch has it write each line at once.
        self.process = subprocess.Popen(self.arguments(count), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.say("CREATE TABLE records(i INTEGER PRIMARY KEY, text TEXT, count INTEGER);")
        self.say(
            f"WITH RECURSIVE n(i) AS (VALUES(0) UNION ALL SELECT i + 1 FROM n WHERE i < {count - 1})"
            f" INSERT INTO records SELECT i, {TEXT}, 0 FROM n;"
        )
        self.say("SELECT 'k';")
        self.hear("k")

    def expect(self, letter, wrong):
        self.say(f"SELECT CASE (SELECT count(*) FROM records WHERE {wrong}) WHEN 0 THEN '{letter}' ELSE 'wrong' END;")
        self.hear(letter)

    def ask(self, what, turn):
        touched = HOT if what == "r" else f"NOT ({HOT}) AND i / 32 % 10 = {turn % 10}"
        ends = f"substr(text, 1, 8) <> printf('%08x', {FIRST}) OR substr(text, -8) <> printf('%08x', {FIRST})"
        self.say(f"UPDATE records SET count = count + 1 WHERE {touched} AND i % 4 = 0;")
        self.expect(what, f"{touched} AND ({ends})")

    def quit(self):
        self.expect("q", f"text <> {TEXT}")
        self.process.stdin.close()
        self.process.wait(PATIENCE)


def lua(name):
    with open(f"{HERE}/{name}.lua") as f:
        return f.read()


# The text of a record comes from the same file as that of Lua.
REDIS = f"local text = (function()\n{lua('text')}\nend)()\n{lua('redis')}"


class Redis(Program):
    """A server; a thousand records a call."""

    def start(self, count):
        path = f"{self.folder}/redis.socket"
        if os.path.exists(path):
            os.unlink(path)
        self.count = count
        options = ("--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", self.folder)
        self.process = subprocess.Popen((*self.command, *options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.server = socket.socket(socket.AF_UNIX)
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                self.server.connect(path)
                break
            except OSError:
                if self.process.poll() is not None or time.monotonic() > give_up:
                    self.ended("no socket")
                time.sleep(0.002)
        self.answers = self.server.makefile("rb")
        self.ask("k", 0)

    def ask(self, what, turn):
        for start in range(0, self.count, 1000):
            words = ("EVAL", REDIS, "0", what, turn, self.count, start)
            packet = f"*{len(words)}\r\n" + "".join(f"${len(str(word))}\r\n{word}\r\n" for word in words)
            try:
                self.server.sendall(packet.encode())
                kind = self.answers.readline()
                got = self.answers.readline().strip().decode() if kind.startswith(b"$") else kind.decode()
            except OSError:
                got = ""
            self.answered(got, what)

    def quit(self):
        self.ask("q", 0)
        self.server.close()
        self.process.terminate()
        self.process.wait(PATIENCE)


def programs():
    return (
        Program("python", GAME, PYTHON, "python.py"),
        Program("numpy", GAME, PYTHON, "arrays.py"),
        Program("node", GAME, "node", "node.js"),
        Java("java", GAME, "java"),
        Program("php", GAME, "php", "php.php"),
        Redis("redis", GAME, "redis-server"),
        Program("ruby", BROWSER, "ruby", "ruby.rb"),
        Program("lua", BROWSER, "lua5.4", "lua.lua"),
        Program("R", MEDIA, "Rscript", "r.R"),
        Program("lisp", MEDIA, "sbcl", "--script", "lisp.lisp"),
        Program("ocaml", MEDIA, "ocaml", "ocaml.ml"),
        Sqlite("sqlite", UTILITY, "sqlite3"),
        Awk("awk", UTILITY, "gawk"),
        Program("tcl", UTILITY, "tclsh", "tcl.tcl"),
        Program("perl", UTILITY, "perl", "perl.pl"),
    )


def present():
    """Those that can be run here."""
    numpy = subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True).returncode == 0
    return [p for p in programs() if p.present() and (p.name != "numpy" or numpy)]


def tell(pid, what):
    """What `memfit bg -w PID` and `memfit fg PID` send, without the time that a command takes to start."""
    name = os.environ["MEMFIT_SOCKET"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as pager:
        pager.settimeout(PATIENCE)
        pager.connect(b"\0" + name.encode())
        pager.send(json.dumps({"stat": 1, "brief": True, "order": {"pid": pid, "what": what}}).encode())
        said = pager.recv(1 << 16)
    # One that comes back may have been killed.
    if b'"standing"' not in said or b"Unknown" in said and what != "ComeBack":
        sys.exit(f"the pager does not answer for process {pid}: {said[:200]}")


def visit(program, count, turn):
    """One trigger and the use after it. A program can be killed until the pager knows that it has come back."""
    began, tries = time.monotonic(), 0
    while True:
        try:
            if program.process:
                tell(program.process.pid, "ComeBack")
            else:
                program.start(count)
            program.ask("r", turn)
            break
        except Killed:
            program.process, tries = None, tries + 1
            if tries > 3:
                sys.exit(f"{program.name} is killed again and again")
    print(f"entry {program.name} {turn} {time.monotonic() - began:.6f}", flush=True)
    program.ask("u", turn)
    time.sleep(DWELL)
    tell(program.process.pid, "LeaveWhenShort")


def main():
    here = present()
    if sys.argv[1] == "check":
        missing = [p.name for p in programs() if p.name not in {q.name for q in here}]
        print("missing: " + ", ".join(missing) if missing else "all are here")
        return
    turns, permille, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    if len(sys.argv) > 4:
        here = [p for p in here if p.name in sys.argv[4].split(",")]
    for program in here:
        program.prepare(folder)
    try:
        in_turns(here, turns, permille)
    finally:
        for program in here:
            if program.process:
                program.process.kill()


def in_turns(here, turns, permille):
    order, rng, began = list(here), random.Random(1), time.monotonic()
    for turn in range(turns):
        rng.shuffle(order)
        for program in order:
            visit(program, max(64, program.records * permille // 1000), turn)
        print(f"sample turn{turn}", flush=True)
        sys.stdin.readline()
    print(f"measured {time.monotonic() - began:.6f}", flush=True)
    for program in here:
        try:
            if program.process:
                program.quit()
        except Killed:
            pass


if __name__ == "__main__":
    main()
