-- Finds claims whose worker stopped sending heartbeats, and claims that end so far ahead that the
-- clock may have been set back since.
-- ARGV[1] now
-- ARGV[2] a claim that ends later than this was made before the clock was set back
-- ARGV[3] the number of the seizing claim
-- ARGV[4] how many claims at most
-- ARGV[5] a claim that ends later than this is far ahead
-- Returns: whether the seizing claim holds something here; how many claims are far ahead, and for
--   each of them: number, until, its holder; then for each expired claim: number, until, how many
--   jobs it holds.

local max = tonumber(ARGV[4])
local answer = { call('ZSCORE', TERMS, ARGV[3]) and 1 or 0 }

local ahead = call('ZRANGEBYSCORE', TERMS, '(' .. ARGV[5], ARGV[2], 'WITHSCORES', 'LIMIT', 0, 1000)
answer[2] = #ahead / 2
for at = 1, #ahead, 2 do
  answer[#answer + 1] = ahead[at]
  answer[#answer + 1] = ahead[at + 1]
  answer[#answer + 1] = call('HGET', CLAIMS, ahead[at]) or ''
end

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
