# Installs a filter that kills for socket, by libc's syscall, and starts a program. With an argument
# Perl has an environment of its own before that. Perl frees its own when it ends.
use strict;
use warnings;

$ENV{OWN} = 'own' if @ARGV;
# Load the number; socket: kill the process; else allow.
my @code = ([0x20, 0, 0, 0], [0x15, 0, 1, 41], [0x06, 0, 0, 0x80000000], [0x06, 0, 0, 0x7fff0000]);
my $code = join '', map { pack 'SCCL', @$_ } @code;
my $program = pack 'Sx6P', scalar @code, $code;
# prctl: PR_SET_NO_NEW_PRIVS; PR_SET_SECCOMP, SECCOMP_MODE_FILTER.
syscall(157, 38, 1, 0, 0, 0) == 0 or die "prctl: $!";
syscall(157, 22, 2, $program) == 0 or die "seccomp: $!";
print "system: ", system('exit 3;') >> 8, "\n";
print "command: ", `echo 4`;
$ENV{LATER} = 'later';
print "later: ", `echo \$LATER`;
