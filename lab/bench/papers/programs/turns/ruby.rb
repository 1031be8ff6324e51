# Records as Ruby objects in a hash. See ../turns.py.
N = ARGV[0].to_i
M = 2147483647
$stdout.sync = true

def text(i)
  x = (i * 48271 + 11) % M
  out = +""
  64.times do |j|
    x = x * 16807 % M
    out << format("%08x-field-%02d;", x, j)
  end
  out << out[0, 8]
end

$total = 0
$records = {}
N.times { |i| $records[i] = [text(i), 0] }

def touch(hot, turn)
  N.times do |i|
    block = i / 32
    next if hot != (block * 7919 % 1000 < 400) || !hot && block % 10 != turn % 10
    record = $records[i]
    first = format("%08x", (i * 48271 + 11) % M * 16807 % M)
    abort "MISMATCH: record #{i}" unless record[0].start_with?(first) && record[0].end_with?(first)
    if i % 4 == 0
      record[1] += 1
      $total += 1
    end
  end
end

puts "k"
$stdin.each_line do |line|
  what, turn = line.split
  if what == "q"
    wrong = N.times.any? { |i| $records[i][0] != text(i) }
    abort "MISMATCH: at the end" if wrong || $records.each_value.sum { |r| r[1] } != $total
    exit
  end
  touch(what == "r", turn.to_i)
  puts what
end
