-- The next keys that keep records, by their bytes. Places are gone through from key to key,
-- whatever each of them keeps. ARGV[1] those behind this one; empty for the first ARGV[2] at most
-- so many Answers: keys.

local from, keys = ARGV[1] == '' and '-' or '(' .. ARGV[1] .. '\1', {}
while #keys < tonumber(ARGV[2]) do
  local place = call('ZRANGEBYLEX', PLACES, from, '+', 'LIMIT', 0, 1)[1]
  if not place then break end
  local key = sub(place, 1, -10)
  keys[#keys + 1] = key
  from = '(' .. key .. '\1'
end
return keys
