-- Applies compare-and-set changes to cells, each by itself.
-- KEYS[1] values  hash  name -> version, value
-- KEYS[2] names   zset  names
-- ARGV    for each change: name; the version that the caller saw, or nothing; the version it gets;
--   1 and the value, or 0 to remove the cell
-- Returns: for each change: A applied; or C, and the current version and value if there is a cell.

local call, sub, answer = redis.call, string.sub, {}

local function swap(name, seen, version, value)
  local standing = call('HGET', KEYS[1], name)
  local current = standing and sub(standing, 1, 8) or ''
  if current == version or current == '' and value == '0' then return 'A' end
  if current ~= seen then return 'C' .. (standing or '') end
  if value == '0' then
    call('HDEL', KEYS[1], name)
    call('ZREM', KEYS[2], name)
  else
    call('HSET', KEYS[1], name, version .. sub(value, 2))
    call('ZADD', KEYS[2], 0, name)
  end
  return 'A'
end

for at = 1, #ARGV, 4 do
  answer[#answer + 1] = swap(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
end
return answer
