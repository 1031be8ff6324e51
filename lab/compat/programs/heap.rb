# Hashes and arrays, changed and checked.
count = ARGV[0].to_i
seed, sum = 1, 0
hash = Hash.new { |all, key| all[key] = [] }
count.times do |i|
  seed = (seed * 1103515245 + 12345) & 0x7fffffff
  hash[seed % (count / 4)] << "value #{i}"
end
2.times do
  hash.keys.sort.each do |key|
    hash[key].each { |s| sum = (sum * 31 + s.size) & 0x7fffffff }
    hash[key] = hash[key].dup
  end
end
puts "#{hash.size} keys, #{sum}"
