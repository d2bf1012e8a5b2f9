-- The next cells, by name.
-- KEYS[1] values  hash  name -> version, value
-- KEYS[2] names   zset  names
-- ARGV[1] from and ARGV[2] to, in the format of ZRANGEBYLEX
-- ARGV[3] how many at most
-- Returns: name, version and value, of each.

local answer = {}
for _, name in ipairs(redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])) do
  local value = redis.call('HGET', KEYS[1], name)
  -- A name without a value is left over from damage; it counts as a cell that has just been
  -- removed.
  answer[#answer + 1] = name
  answer[#answer + 1] = value or ''
end
return answer
