-- Looks for claims whose worker stopped beating.
-- ARGV[1] now
-- ARGV[2] a claim that ends later than this was made before the clock was set back
-- ARGV[3] the seizer's number
-- ARGV[4] at most so many claims
-- Answers: whether the seizer holds something here; then for each claim: number, until, how many jobs it holds.

local max = tonumber(ARGV[4])
local answer = { call('ZSCORE', TERMS, ARGV[3]) and 1 or 0 }

local function look(from, to)
  local found = call('ZRANGEBYSCORE', TERMS, from, to, 'WITHSCORES', 'LIMIT', 0, max)
  for at = 1, #found, 2 do
    answer[#answer + 1] = found[at]
    answer[#answer + 1] = found[at + 1]
    answer[#answer + 1] = call('HGET', LEFT, found[at]) or '0'
  end
end
look('-inf', '(' .. ARGV[1])
look('(' .. ARGV[2], '+inf')
return answer
