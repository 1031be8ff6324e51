-- Records as Lua tables. See ../turns.py.
local n, M, total, records = tonumber(arg[1]), 2147483647, 0, {}
local text = dofile("text.lua")

local function fail(why)
  io.stderr:write("MISMATCH: ", why, "\n")
  os.exit(1)
end

local function touch(hot, turn)
  for i = 0, n - 1 do
    local block = i // 32
    local is_hot = block * 7919 % 1000 < 400
    if hot and is_hot or not hot and not is_hot and block % 10 == turn % 10 then
      local record, first = records[i], string.format("%08x", (i * 48271 + 11) % M * 16807 % M)
      if record.text:sub(1, 8) ~= first or record.text:sub(-8) ~= first then fail("record " .. i) end
      if i % 4 == 0 then
        record.count = record.count + 1
        total = total + 1
      end
    end
  end
end

for i = 0, n - 1 do records[i] = { text = text(i), count = 0 } end
print("k")
io.stdout:flush()
for line in io.lines() do
  local what, turn = line:match("(%a) (%d+)")
  if what == "q" then
    local sum = 0
    for i = 0, n - 1 do
      if records[i].text ~= text(i) then fail("record " .. i) end
      sum = sum + records[i].count
    end
    if sum ~= total then fail("counts") end
    os.exit(0)
  end
  touch(what == "r", tonumber(turn))
  print(what)
  io.stdout:flush()
end
