-- Groups of deaths, by fingerprint. ARGV[1] behind this fingerprint; empty for the first ones
-- ARGV[2] at most so many Answers: for each group: fingerprint, how many, when the first and the
-- last one died, the last one's id.

-- Behind every member of a fingerprint.
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
