#!/usr/bin/env bash
# An unmodified program in half the memory that it takes: GNU sort on a generated file. First without memfit, to see its
# natural peak; then with half of it as the budget. The outputs must be equal. DEMO_LINES: lines of that file.
set -euo pipefail
memfit=${MEMFIT:-target/release/memfit}
lines=${DEMO_LINES:-700000}
[ -x "$memfit" ] || { echo "no $memfit: run 'make build' first" >&2; exit 1; }

directory=$(mktemp -d "${TMPDIR:-/var/tmp}/memfit-demo.XXXXXX")
trap 'rm -rf "$directory"' EXIT
input=$directory/input
export LC_ALL=C

# The largest resident size of a command, KiB, on the last line of FILE; its output in OUTPUT.
measured() { # FILE OUTPUT COMMAND...
    python3 - "$@" <<'PYTHON'
import resource, subprocess, sys, time
start = time.monotonic()
with open(sys.argv[2], "wb") as out:
    code = subprocess.run(sys.argv[3:], stdout=out).returncode
with open(sys.argv[1], "w") as file:
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, f"{time.monotonic() - start:.1f}", file=file)
sys.exit(code)
PYTHON
}

echo "A log of $lines lines, written by 40 hosts whose clocks differ, to be sorted by time ..."
awk -v lines="$lines" 'BEGIN {
    srand(5)
    for (i = 0; i < lines; i++) {
        t = i / 20 + rand() * 600
        printf "2024-05-01T%02d:%02d:%02d.%03d host%02d service[%d]: GET /catalogue/item/%d?session=%08x status=200 bytes=%d\n",
            int(t / 3600), int(t / 60) % 60, int(t) % 60, int(t * 1000) % 1000, i % 40, 1000 + i % 7,
            i * 17 % 9973, rand() * 4294967295, int(rand() * 60000)
    }
}' >"$input"
command=(sort -S 1G --parallel=1 "$input")

measured "$directory/plain" "$directory/expected" "${command[@]}"
read -r natural seconds <"$directory/plain"
budget=$((natural / 2))
echo "\$ sort -S 1G --parallel=1 input"
echo "  without memfit: natural peak $((natural / 1024)) MiB, $seconds s"
echo "\$ memfit run -m ${budget}K -- sort -S 1G --parallel=1 input"
"$memfit" run -m "${budget}K" -- "${command[@]}" >"$directory/found"
cmp "$directory/expected" "$directory/found"
echo "  the outputs are equal: $(sha256sum <"$directory/found" | cut -c1-16)..., $(wc -l <"$directory/found") lines"
