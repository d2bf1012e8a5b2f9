-- Whether there is work in a shard. Workers call this often and mostly in vain, so the script has
-- no prefix.
-- KEYS[1] due    zset  due key
-- KEYS[2] taken  zset  number key
-- ARGV[1] number
-- Returns: when the next key is due; whether any key is leased under the number (0, 1).

local due = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
local taken = redis.call('ZRANGEBYLEX', KEYS[2], '[' .. ARGV[1], '(' .. ARGV[1] .. '\255', 'LIMIT', 0, 1)
return { due and string.sub(due, 1, 8) or '', #taken }
