-- Adds dead jobs to their groups, if their fingerprint is known.
-- ARGV    members of the dead line
-- Returns: how many were missing; then for each job without a known fingerprint: member, reason,
--   history.

local answer = { 0 }
for _, member in ipairs(ARGV) do
  local id = sub(member, 17)
  local death = call('HGET', DEATHS, id)
  if death and sub(death, 9) == sub(member, 1, 16) then
    answer[1] = answer[1] + call('ZADD', GROUPS, 'NX', 0, death .. id)
  else
    local record = call('HGET', RECORDS, id)
    answer[#answer + 1] = member
    answer[#answer + 1] = record and sub(record, 19, 19) or ''
    answer[#answer + 1] = call('HGET', HISTORIES, id) or ''
  end
end
return answer
