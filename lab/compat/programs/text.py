"""text.py MIB [SEED]: lines of words and numbers, the same each time."""
import sys

size, seed = int(sys.argv[1]) << 20, int(sys.argv[2]) if len(sys.argv) > 2 else 1
words = "memory page frame fault reclaim pool codec swap tier budget process thread event batch window ring object slot".split()
lines, done = [], 0
while done < size:
    seed = (seed * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
    line = f"{seed >> 40} {words[seed >> 33 & 15]} {words[seed >> 37 & 15]} {seed >> 20 & 0xFFFFF}\n"
    done += len(line)
    lines.append(line)
    if len(lines) > 100000:
        sys.stdout.write("".join(lines))
        lines.clear()
sys.stdout.write("".join(lines))
