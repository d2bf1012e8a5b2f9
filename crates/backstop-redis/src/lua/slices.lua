-- Prefix of every script: reads and writes many values in slices.

local call, sub, byte, concat = redis.call, string.sub, string.byte, table.concat

-- A Lua function call takes some thousands of arguments and no more. The number is even, because
-- many commands take pairs.
local SLICE = 4000

local function write(command, key, values)
  for first = 1, #values, SLICE do
    call(command, key, unpack(values, first, math.min(first + SLICE - 1, #values)))
  end
end

local function read(key, fields)
  if #fields == 0 then return {} end
  if #fields <= SLICE then return call('HMGET', key, unpack(fields)) end
  local found = {}
  for first = 1, #fields, SLICE do
    local slice = call('HMGET', key, unpack(fields, first, math.min(first + SLICE - 1, #fields)))
    for i = 1, #slice do found[first + i - 1] = slice[i] end
  end
  return found
end
