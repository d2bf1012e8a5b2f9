-- Adds names of queues to the registry, all of them or none.
-- KEYS[1] registry
-- ARGV[1] how many queues there may be; then the names
-- Returns: the first name that there is no room for, or nothing.

local count, new = redis.call('SCARD', KEYS[1]), {}
for i = 2, #ARGV do
  if redis.call('SISMEMBER', KEYS[1], ARGV[i]) == 0 then
    new[#new + 1] = ARGV[i]
    if count + #new > tonumber(ARGV[1]) then return ARGV[i] end
  end
end
for _, name in ipairs(new) do redis.call('SADD', KEYS[1], name) end
return false
