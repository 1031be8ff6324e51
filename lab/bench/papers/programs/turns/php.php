<?php
// Records as PHP arrays. See ../turns.py.
ini_set('memory_limit', '-1');
$n = (int) $argv[1];
const M = 2147483647;

function text(int $i): string {
    $x = ($i * 48271 + 11) % M;
    $out = '';
    for ($j = 0; $j < 64; $j++) {
        $x = $x * 16807 % M;
        $out .= sprintf('%08x-field-%02d;', $x, $j);
    }
    return $out . substr($out, 0, 8);
}

function fail(string $why): void {
    fwrite(STDERR, "MISMATCH: $why\n");
    exit(1);
}

function touch_records(array &$records, bool $hot, int $turn, int &$total): void {
    $n = count($records);
    for ($i = 0; $i < $n; $i++) {
        $block = intdiv($i, 32);
        if ($hot != ($block * 7919 % 1000 < 400) || !$hot && $block % 10 != $turn % 10) continue;
        $first = sprintf('%08x', ($i * 48271 + 11) % M * 16807 % M);
        if (!str_starts_with($records[$i]['text'], $first) || !str_ends_with($records[$i]['text'], $first)) fail("record $i");
        if ($i % 4 == 0) {
            $records[$i]['count']++;
            $total++;
        }
    }
}

$total = 0;
$records = [];
for ($i = 0; $i < $n; $i++) $records[] = ['text' => text($i), 'count' => 0];
echo "k\n";
while (($line = fgets(STDIN)) !== false) {
    [$what, $turn] = explode(' ', trim($line));
    if ($what == 'q') {
        $sum = 0;
        foreach ($records as $i => $record) {
            if ($record['text'] !== text($i)) fail("record $i");
            $sum += $record['count'];
        }
        if ($sum != $total) fail('counts');
        exit(0);
    }
    touch_records($records, $what == 'r', (int) $turn, $total);
    echo "$what\n";
}
