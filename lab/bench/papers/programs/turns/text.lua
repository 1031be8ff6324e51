-- The text of a record, in Lua and in Redis. See ../turns.py.
local M = 2147483647

return function(i)
  local x, out = (i * 48271 + 11) % M, {}
  for j = 0, 63 do
    x = x * 16807 % M
    out[#out + 1] = string.format("%08x-field-%02d;", x, j)
  end
  return table.concat(out) .. out[1]:sub(1, 8)
end
