-- Dead jobs by fingerprint.

-- Adds a member of the dead line under its fingerprint.
local function add_death(member, fingerprint)
  call('HSET', DEATHS, sub(member, 17), fingerprint .. sub(member, 1, 16))
  call('ZADD', GROUPS, 0, fingerprint .. member)
end

local function remove_death(id)
  local death = call('HGET', DEATHS, id)
  if not death then return end
  call('ZREM', GROUPS, death .. id)
  call('HDEL', DEATHS, id)
end
