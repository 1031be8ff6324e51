"""The programs of docs/compat.md: what each needs, what it makes beforehand, and its command line.

A line runs in a folder of its own with these in its environment: P, the folder programs/; PY, an interpreter. Its output
on standard output must be the same in each run: results and checksums, no times and no addresses. A line is run by
bash with -e and pipefail: if any part fails, it fails.
"""
from dataclasses import dataclass


@dataclass
class Program:
    name: str
    line: str
    # Commands that must be there, and modules of Python.
    needs: tuple = ()
    modules: tuple = ()
    # Run once before, without a limit.
    setup: str = ""
    # Prints the version, on its first line.
    version: str = ""
    # Packages of Debian, or "pip NAME".
    packages: str = ""
    group: str = ""


JAVA = "java -Xmx1g -XX:+Use{gc} -cp . Heap {count}"
SUM = "| sha256sum"


def java(title, gc, count=700_000):
    return Program(title, JAVA.format(gc=gc, count=count), ("java", "javac"), (), 'javac -d . "$P/Heap.java"', "java -version 2>&1",
                   "openjdk-17-jdk-headless", "Collectors")


def preloaded(name, library, package):
    line = f'LD_PRELOAD="$LD_PRELOAD:$(ls /usr/lib/*/{library} | head -1)" PYTHONMALLOC=malloc "$PY" "$P/objects.py" 200000'
    return Program(f"CPython with {name}", line, (f"/usr/lib/*/{library}",), (), "", f"basename $(readlink -f /usr/lib/*/{library})",
                   package, "Allocators")


def frame(name, rows):
    return Program(name, f'"$PY" "$P/frame.py" {name} {rows}', (), ("numpy", name), "", f'"$PY" -c "import {name}; print({name}.__version__)"',
                   f"pip {name}", "Data")


PROGRAMS = [
    # Compilers
    Program("GCC, C", f"gcc -O2 -c -o big.o big.c && sha256sum big.o", ("gcc",), (), '"$PY" "$P/source.py" c 1500 >big.c', "gcc --version",
            "gcc", "Compilers"),
    Program("GCC, C++", "g++ -O1 -c -o big.o big.cc && sha256sum big.o", ("g++",), (), '"$PY" "$P/source.py" c++ 160 >big.cc',
            "g++ --version", "g++", "Compilers"),
    Program("GNU ld", "gcc -o linked part*.o main.o && ./linked && sha256sum linked", ("gcc", "ld"), (),
            'for i in 1 2 3 4; do "$PY" "$P/source.py" c 6000 | sed "s/int f/int f${i}_/" >p.c && gcc -g3 -ffunction-sections -c -o part$i.o p.c; done; '
            'echo "#include <stdio.h>\nint main(void) { return puts(\\"linked\\") < 0; }" >main.c && gcc -c main.c',
            "ld --version", "binutils", "Compilers"),
    Program("rustc", "rustc -O -C codegen-units=2 -o big big.rs && ./big", ("rustc",), (), '"$PY" "$P/source.py" rust 800 >big.rs',
            "rustc --version", "rustc", "Compilers"),
    Program("javac", "rm -rf out && javac -J-Xmx1g -d out Big.java && cat out/*.class | sha256sum", ("javac",), (),
            '"$PY" "$P/source.py" java 3000 >Big.java', "javac -version 2>&1", "openjdk-17-jdk-headless", "Compilers"),
    Program("go build", 'GOFLAGS=-mod=mod GOCACHE="$PWD/cache$$" go build -a -o built heap.go && ./built 1000 && rm -rf cache*', ("go",), (),
            'cp "$P/heap.go" .', "go version", "golang-go", "Compilers"),
    # Java's collectors
    java("Java, G1", "G1GC"), java("Java, Parallel", "ParallelGC"), java("Java, Serial", "SerialGC"),
    java("Java, Shenandoah", "ShenandoahGC"), java("Java, ZGC", "ZGC"),
    # Languages
    Program("node", 'node "$P/heap.js" 400000', ("node",), (), "", "node --version", "nodejs", "Languages"),
    Program("Go, dynamic", "./dynamic 400000", ("go", "gcc"), (),
            'sed "s/^import (/import \\"C\\"\\nimport (/" "$P/heap.go" >cgo.go && CGO_ENABLED=1 go build -o dynamic cgo.go', "go version",
            "golang-go", "Languages"),
    Program("Go, static", "./static 400000", ("go",), (), 'cp "$P/heap.go" . && CGO_ENABLED=0 go build -o static heap.go', "go version",
            "golang-go", "Languages"),
    Program("CPython", '"$PY" "$P/objects.py" 250000', (), (), "", '"$PY" --version', "python3", "Languages"),
    Program("Perl", 'perl "$P/heap.pl" 200000', ("perl",), (), "", "perl -e 'print qq(perl $^V\\n)'", "perl", "Languages"),
    Program("Ruby", 'ruby "$P/heap.rb" 300000', ("ruby",), (), "", "ruby --version", "ruby", "Languages"),
    Program("Lua", 'lua5.4 "$P/heap.lua" 1200000', ("lua5.4",), (), "", "lua5.4 -v", "lua5.4", "Languages"),
    Program("PHP", 'php "$P/heap.php" 1500000', ("php",), (), "", "php --version", "php-cli", "Languages"),
    Program("Tcl", 'tclsh "$P/heap.tcl" 900000', ("tclsh",), (), "", 'echo "puts [info patchlevel]" | tclsh', "tcl", "Languages"),
    Program("SBCL", 'sbcl --dynamic-space-size 1024 --script "$P/heap.lisp" 900000', ("sbcl",), (), "", "sbcl --version", "sbcl", "Languages"),
    Program("SWI-Prolog", 'swipl "$P/heap.pro" 19', ("swipl",), (), "", "swipl --version", "swi-prolog-nox", "Languages"),
    # Data
    Program("NumPy", '"$PY" -c "import numpy as n; a = n.random.default_rng(1).random(12_000_000); a.sort(); b = n.linalg.svd(a[:360000].reshape(600, 600))[1]; '
            'print(n.float64(a[::1000].sum()).hex(), round(float(b[0]), 6))"', (), ("numpy",), "", '"$PY" -c "import numpy; print(numpy.__version__)"',
            "python3-numpy", "Data"),
    frame("pandas", 900_000), frame("polars", 1_500_000), frame("duckdb", 3_000_000),
    Program("SQLite", "sqlite3 :memory: \"create table t (k integer, v text); with recursive n(i) as (values(1) union all select i + 1 from n where i < 1200000) "
            "insert into t select i * 7919 % 1000003, 'value ' || i from n; create index x on t (k); select count(*), sum(k), min(v), max(v) from t; "
            "select sum(length(a.v)) from t a join t b on a.k = b.k where a.k % 7 = 3; pragma integrity_check;\"", ("sqlite3",), (), "",
            "sqlite3 --version", "sqlite3", "Data"),
    Program("Redis", '"$PY" "$P/../../bench/workloads/redis.py" set 150000 150000 2>/dev/null', ("redis-benchmark",), (), "",
            "redis-benchmark --version", "redis-tools", "Data"),
    Program("GNU sort", f"sort -S 1G text {SUM}", ("sort",), (), '"$PY" "$P/text.py" 120 >text', "sort --version", "coreutils", "Data"),
    Program("mawk", f"mawk '{{ n[$1 % 300000] = n[$1 % 300000] $2; c[$4]++ }} END {{ for (i = 0; i < 300000; i++) s += length(n[i]); print s, length(c) }}' text",
            ("mawk",), (), '"$PY" "$P/text.py" 8 >text', "mawk -W version 2>&1", "mawk", "Data"),
    Program("gawk", f"gawk '{{ n[$1 % 300000] = n[$1 % 300000] $2; c[$4]++ }} END {{ for (i = 0; i < 300000; i++) s += length(n[i]); print s, length(c) }}' text",
            ("gawk",), (), '"$PY" "$P/text.py" 40 >text', "gawk --version", "gawk", "Data"),
    Program("jq", "jq 'map(.n) | add, length' objects.json && jq 'sort_by(.t) | .[10:12] | map(.t)' objects.json", ("jq",), (),
            '"$PY" -c "import json; print(json.dumps([{\'n\': i, \'t\': \'text %d\' % (i * 7919 % 1000003), \'l\': [i, i + 1]} for i in range(300000)]))" >objects.json',
            "jq --version", "jq", "Data"),
    # Compression
    Program("xz", f"xz -9 -T1 -c text >text.xz && sha256sum text.xz && xz -dc text.xz {SUM}", ("xz",), (), '"$PY" "$P/text.py" 3 >text',
            "xz --version", "xz-utils", "Compression"),
    Program("zstd", f"zstd -q -12 --long=27 -T1 -c text >text.zst && zstd -q -dc --long=27 text.zst {SUM}", ("zstd",), (),
            '"$PY" "$P/text.py" 16 >text', "zstd --version", "zstd", "Compression"),
    Program("brotli", f"brotli -q 7 -w 24 -c text >text.br && sha256sum text.br && brotli -dc text.br {SUM}", ("brotli",), (),
            '"$PY" "$P/text.py" 10 >text', "brotli --version", "brotli", "Compression"),
    Program("7-Zip", f"rm -f a.7z; 7z a -bd -mx=7 -mmt=2 -m0=lzma2 -si a.7z <text >/dev/null && 7z x -so a.7z {SUM} && rm -f a.7z", ("7z",), (),
            '"$PY" "$P/text.py" 8 >text', "7z i | sed -n 2p", "p7zip-full", "Compression"),
    # Media
    Program("ImageMagick", f"$(command -v convert-im6.q16 || echo convert) -limit memory 2GiB -limit thread 2 -seed 1 -size 3000x2000 plasma:red-blue -rotate 33 -blur 0x4 -resize 60% rgb:- {SUM}",
            ("/usr/bin/convert*",), (), "", "$(command -v convert-im6.q16 || echo convert) --version", "imagemagick", "Media"),
    Program("FFmpeg", f"ffmpeg -v error -threads 2 -f lavfi -i testsrc2=size=1920x1080:rate=25:duration=2 -c:v libx264 -preset slow -threads 2 -f h264 - {SUM}",
            ("ffmpeg",), (), "", "ffmpeg -version", "ffmpeg", "Media"),
    Program("Graphviz", f"sfdp -Tplain big.dot 2>/dev/null {SUM}", ("sfdp",), (),
            '"$PY" -c "print(\'graph {\' + \' \'.join(\'n%d -- n%d;\' % (i, (i * 7919 + 1) % 20000) for i in range(20000)) + \'}\')" >big.dot', "dot -V 2>&1",
            "graphviz", "Media"),
    Program("Chromium", f"\"$(command -v chromium || command -v chromium-headless-shell)\" --headless --no-sandbox --disable-gpu --user-data-dir=\"$PWD/profile$$\" "
            f"--virtual-time-budget=10000 --dump-dom big.html 2>/dev/null {SUM} && rm -rf profile*", ("chromium",), (),
            'echo "<body><script>for (let i = 0; i < 60000; i++) { const p = document.createElement(\'p\'); p.textContent = \'line \' + i * 7919 % 60000; '
            'document.body.append(p); } document.title = document.body.offsetHeight > 0;</script>" >big.html', "chromium --version", "chromium", "Media"),
    # Tools
    Program("Git", "rm -rf copy && cp -r repo copy && git -C copy -c pack.threads=2 gc -q --aggressive --prune=now && git -C copy fsck --full 2>&1 "
            f"&& git -C copy rev-list --objects --all {SUM}", ("git",), (),
            'git init -q repo && cd repo && git config user.email a@b && git config user.name a && git config gc.auto 0 && for i in $(seq 24); do "$PY" "$P/text.py" 2 $((i / 4 + 1)) >a$((i % 9)) && '
            'echo $i >>a$((i % 9)) && git add -A && git commit -q -m $i; done', "git --version", "git", "Tools"),
    Program("Vim", "cp text edited && vim -u NONE -i NONE -n -es -c 'set undolevels=1000' -c '%s/page/frame/g' -c wq edited </dev/null && sha256sum edited",
            ("vim",), (), '"$PY" "$P/text.py" 24 >text', "vim --version", "vim", "Tools"),
    Program("GDB", "gdb -batch -nx -ex 'info functions f1_1' -ex 'ptype int' linked 2>&1 | tail -40 | sha256sum", ("gdb", "gcc"), (),
            '"$PY" "$P/source.py" c 20000 | sed "s/int f/int f1_/" >p.c && echo "int main(void) { return 0; }" >>p.c && gcc -g3 -o linked p.c', "gdb --version", "gdb", "Tools"),
    Program("diff", f"(diff -d text other || [ $? = 1 ]) {SUM}", ("diff",), (), '"$PY" "$P/text.py" 24 >text && sed "s/page reclaim/reclaim page/; /event thread/d" text >other',
            "diff --version", "diffutils", "Tools"),
    Program("PostgreSQL", 'S="$P/../../../crates/cli/tests/workloads/postgresql.sh" B=$(ls -d /usr/lib/postgresql/*/bin | tail -1) D=$(mktemp -d); '
            'trap "sh \"$S\" \"$B\" $D/data remove; rmdir $D" EXIT; chmod 755 "$D"; sh "$S" "$B" "$D/data" init; sh "$S" "$B" "$D/data" serve',
            ("/usr/lib/postgresql/*/bin/postgres", "setpriv"), (), "", "/usr/lib/postgresql/*/bin/postgres --version", "postgresql", "Data"),
    Program("stress-ng", "for what in 'vm 2 --vm-bytes 160M --vm-method all --vm-ops 6000' 'mmap 1 --mmap-bytes 120M --mmap-ops 3' "
            "'bigheap 1 --bigheap-ops 3000' 'malloc 2 --malloc-bytes 60M --malloc-ops 40000'; do "
            "stress-ng --$what --verify --seed 1 >/dev/null 2>&1; echo \"$what: $?\"; done", ("stress-ng",), (), "",
            "stress-ng --version", "stress-ng", "Tools"),
    # Allocators
    preloaded("jemalloc", "libjemalloc.so.2", "libjemalloc2"), preloaded("mimalloc", "libmimalloc.so.2*", "libmimalloc2.0"),
    preloaded("tcmalloc", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
]
