# Hashes and lists, changed and checked.
use strict;
use warnings;
use integer;
my ($count, %hash, $sum) = ($ARGV[0]);
my $seed = 1;
for my $i (0 .. $count - 1) {
    $seed = ($seed * 1103515245 + 12345) & 0x7fffffff;
    push @{$hash{$seed % ($count / 4)}}, "value $i";
}
$sum = 0;
for my $round (1 .. 2) {
    for my $key (sort { $a <=> $b } keys %hash) {
        $sum = ($sum * 31 + length $_) & 0x7fffffff for @{$hash{$key}};
        $hash{$key} = [@{$hash{$key}}];
    }
}
print scalar(keys %hash), " keys, $sum\n";
