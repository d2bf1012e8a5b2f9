-- Dead jobs by what they died of.

-- A member of the dead line, and what it died of.
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
