# Dictionaries and lists, changed and checked.
set count [lindex $argv 0]
set seed 1
set sum 0
for {set i 0} {$i < $count} {incr i} {
    set seed [expr {($seed * 1103515245 + 12345) & 0x7fffffff}]
    lappend all([expr {$seed % ($count / 4)}]) "value $i"
}
for {set key 0} {$key < $count / 4} {incr key} {
    if {![info exists all($key)]} continue
    foreach s $all($key) { set sum [expr {($sum * 31 + [string length $s]) & 0x7fffffff}] }
    set all($key) [lreverse $all($key)]
}
puts "[array size all] keys, $sum"
