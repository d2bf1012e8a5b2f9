-- Records that runs have started.
-- ARGV    for each run: id number
-- Returns: those that are not the current lease of their job.

-- A Redis without free memory refuses a command that may need more, but only as the first write of
-- a script. So this harmless write lets claimed jobs still be kept and ended.
call('HDEL', LEASES, '')

local ids, lost, begun = {}, {}, {}
for i, lease in ipairs(ARGV) do ids[i] = sub(lease, 1, 16) end
local leases = read(LEASES, ids)
for i, id in ipairs(ids) do
  local lease = leases[i]
  if lease and sub(lease, 1, 8) == sub(ARGV[i], 17) then
    begun[#begun + 1] = id
    begun[#begun + 1] = sub(lease, 1, 8) .. '1' .. sub(lease, 10)
  else
    lost[#lost + 1] = ARGV[i]
  end
end
write('HSET', LEASES, begun)
return concat(lost)
