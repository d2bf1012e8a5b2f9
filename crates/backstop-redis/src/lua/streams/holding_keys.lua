-- The next keys that hold records, by their bytes. The script goes through places from key to key,
-- however many records each of them holds.
-- ARGV[1] the key to start behind; empty for the first keys
-- ARGV[2] how many at most
-- Returns: keys.

local from, keys = ARGV[1] == '' and '-' or '(' .. ARGV[1] .. '\1', {}
while #keys < tonumber(ARGV[2]) do
  local place = call('ZRANGEBYLEX', PLACES, from, '+', 'LIMIT', 0, 1)[1]
  if not place then break end
  local key = sub(place, 1, -10)
  keys[#keys + 1] = key
  from = '(' .. key .. '\1'
end
return keys
