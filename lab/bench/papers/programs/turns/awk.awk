# Records in the arrays of gawk. See ../turns.py.
function make(i,    x, j, out) {
    x = (i * 48271 + 11) % M
    out = ""
    for (j = 0; j < 64; j++) {
        x = x * 16807 % M
        out = out sprintf("%08x-field-%02d;", x, j)
    }
    return out substr(out, 1, 8)
}
function fail(why) {
    print "MISMATCH: " why > "/dev/stderr"
    exit 1
}
function touch(hot, turn,    i, block, is_hot, first) {
    for (i = 0; i < n; i++) {
        block = int(i / 32)
        is_hot = block * 7919 % 1000 < 400
        if (hot ? !is_hot : is_hot || block % 10 != turn % 10) continue
        first = sprintf("%08x", (i * 48271 + 11) % M * 16807 % M)
        if (substr(text[i], 1, 8) != first || substr(text[i], length(text[i]) - 7) != first) fail("record " i)
        if (i % 4 == 0) {
            count[i]++
            total++
        }
    }
}
BEGIN {
    M = 2147483647
    for (i = 0; i < n; i++) {
        text[i] = make(i)
        count[i] = 0
    }
    print "k"
    fflush()
}
$1 == "q" {
    for (i = 0; i < n; i++) {
        if (text[i] != make(i)) fail("record " i)
        sum += count[i]
    }
    if (sum != total) fail("counts")
    exit 0
}
{
    touch($1 == "r", $2)
    print $1
    fflush()
}
