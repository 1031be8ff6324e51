-- What a call to Redis does with a thousand records. See ../turns.py.
local M = 2147483647
local what, turn, n, from = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
for i = from, math.min(from + 999, n - 1) do
  local block = math.floor(i / 32)
  local hot = block * 7919 % 1000 < 400
  if what == "k" then redis.call("SET", i, text(i))
  elseif what == "q" then
    if redis.call("GET", i) ~= text(i) then return "wrong" end
  elseif what == "r" and hot or what == "u" and not hot and block % 10 == turn % 10 then
    local first = string.format("%08x", (i * 48271 + 11) % M * 16807 % M)
    local kept = redis.call("GET", i)
    if kept:sub(1, 8) ~= first or kept:sub(-8) ~= first then return "wrong" end
    if i % 4 == 0 then redis.call("INCR", "count" .. i) end
  end
end
return what
