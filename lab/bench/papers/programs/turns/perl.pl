# Records as Perl hashes. See ../turns.py.
use strict;
use warnings;
$| = 1;
my ($n, $M, $total, @records) = ($ARGV[0], 2147483647, 0);

sub text {
    my $x = ($_[0] * 48271 + 11) % $M;
    my $out = '';
    for my $j (0 .. 63) {
        $x = $x * 16807 % $M;
        $out .= sprintf '%08x-field-%02d;', $x, $j;
    }
    return $out . substr $out, 0, 8;
}

sub touch {
    my ($hot, $turn) = @_;
    for my $i (0 .. $n - 1) {
        my $block = int($i / 32);
        my $is_hot = $block * 7919 % 1000 < 400;
        next if $hot ? !$is_hot : $is_hot || $block % 10 != $turn % 10;
        my $first = sprintf '%08x', ($i * 48271 + 11) % $M * 16807 % $M;
        my $text = \$records[$i]{text};
        die "MISMATCH: record $i\n" unless substr($$text, 0, 8) eq $first && substr($$text, -8) eq $first;
        if ($i % 4 == 0) {
            $records[$i]{count}++;
            $total++;
        }
    }
}

push @records, { text => text($_), count => 0 } for 0 .. $n - 1;
print "k\n";
while (my $line = <STDIN>) {
    my ($what, $turn) = split ' ', $line;
    if ($what eq 'q') {
        my $sum = 0;
        for my $i (0 .. $n - 1) {
            die "MISMATCH: record $i\n" unless $records[$i]{text} eq text($i);
            $sum += $records[$i]{count};
        }
        die "MISMATCH: counts\n" unless $sum == $total;
        exit 0;
    }
    touch($what eq 'r', $turn);
    print "$what\n";
}
