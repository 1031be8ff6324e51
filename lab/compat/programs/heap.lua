-- Tables, changed and checked.
local count, seed, sum = tonumber(arg[1]), 1, 0
local all = {}
for i = 1, count do
  seed = (seed * 1103515245 + 12345) % 2147483648
  local key = seed % (count // 4)
  all[key] = all[key] or {}
  table.insert(all[key], "value " .. i)
end
for _ = 1, 2 do
  for key = 0, count // 4 - 1 do
    local copy = {}
    for i, s in ipairs(all[key] or {}) do
      sum = (sum * 31 + #s) % 2147483647
      copy[i] = s
    end
    all[key] = copy
  end
end
print(count, sum)
