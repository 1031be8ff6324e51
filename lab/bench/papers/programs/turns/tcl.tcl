# Records as Tcl lists in an array. See ../turns.py.
set n [lindex $argv 0]
set M 2147483647
set total 0

proc text {i} {
    set x [expr {($i * 48271 + 11) % $::M}]
    for {set j 0} {$j < 64} {incr j} {
        set x [expr {$x * 16807 % $::M}]
        append out [format "%08x-field-%02d;" $x $j]
    }
    return $out[string range $out 0 7]
}

proc fail {why} {
    puts stderr "MISMATCH: $why"
    exit 1
}

proc touch {hot turn} {
    for {set i 0} {$i < $::n} {incr i} {
        set block [expr {$i / 32}]
        set is_hot [expr {$block * 7919 % 1000 < 400}]
        if {$hot ? !$is_hot : ($is_hot || $block % 10 != $turn % 10)} continue
        set first [format "%08x" [expr {($i * 48271 + 11) % $::M * 16807 % $::M}]]
        if {[string range $::texts($i) 0 7] ne $first || [string range $::texts($i) end-7 end] ne $first} { fail "record $i" }
        if {$i % 4 == 0} {
            incr ::counts($i)
            incr ::total
        }
    }
}

for {set i 0} {$i < $n} {incr i} {
    set texts($i) [text $i]
    set counts($i) 0
}
puts k
flush stdout
while {[gets stdin line] >= 0} {
    lassign $line what turn
    if {$what eq "q"} {
        set sum 0
        for {set i 0} {$i < $n} {incr i} {
            if {$texts($i) ne [text $i]} { fail "record $i" }
            incr sum $counts($i)
        }
        if {$sum != $total} { fail counts }
        exit 0
    }
    touch [expr {$what eq "r"}] $turn
    puts $what
    flush stdout
}
