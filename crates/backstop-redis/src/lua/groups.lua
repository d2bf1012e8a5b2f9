-- Dead letters grouped by fingerprint.
-- ARGV[1] the fingerprint to start behind; empty for the first groups
-- ARGV[2] how many groups at most
-- Returns: for each group: fingerprint, how many jobs, when the first and the last one died, the id
--   of the last one.

-- A bound behind every member with this fingerprint.
local function behind(fingerprint) return '(' .. fingerprint .. string.rep('\255', 33) end

local from, max, answer = ARGV[1] == '' and '-' or behind(ARGV[1]), tonumber(ARGV[2]), {}
for _ = 1, max do
  local first = call('ZRANGEBYLEX', GROUPS, from, '+', 'LIMIT', 0, 1)[1]
  if not first then break end
  local fingerprint = sub(first, 1, 8)
  local low, high = '[' .. fingerprint, behind(fingerprint)
  local last = call('ZREVRANGEBYLEX', GROUPS, high, low, 'LIMIT', 0, 1)[1]
  answer[#answer + 1] = fingerprint
  answer[#answer + 1] = call('ZLEXCOUNT', GROUPS, low, high)
  answer[#answer + 1] = sub(first, 9, 16)
  answer[#answer + 1] = sub(last, 9, 16)
  answer[#answer + 1] = sub(last, 25)
  from = high
end
return answer
