<?php
// Arrays, changed and checked.
ini_set("memory_limit", "-1");
$count = (int)$argv[1];
$seed = 1;
$sum = 0;
$all = [];
for ($i = 0; $i < $count; $i++) {
    $seed = ($seed * 1103515245 + 12345) & 0x7fffffff;
    $all[$seed % intdiv($count, 4)][] = "value $i";
}
for ($round = 0; $round < 2; $round++) {
    for ($key = 0; $key < intdiv($count, 4); $key++) {
        foreach ($all[$key] ?? [] as $s) $sum = ($sum * 31 + strlen($s)) & 0x7fffffff;
        $all[$key] = array_reverse($all[$key] ?? []);
    }
}
echo "$count values, $sum\n";
