-- Makes the list of names match the cells that exist.
-- KEYS[1] values  hash  name -> version, value
-- KEYS[2] names   zset  names
-- ARGV    names
-- Returns: how many were wrong.

local mended = 0
for _, name in ipairs(ARGV) do
  if redis.call('HEXISTS', KEYS[1], name) == 1 then
    mended = mended + redis.call('ZADD', KEYS[2], 'NX', 0, name)
  else
    mended = mended + redis.call('ZREM', KEYS[2], name)
  end
end
return mended
