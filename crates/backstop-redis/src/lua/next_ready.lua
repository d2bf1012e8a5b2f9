-- The next jobs of the ready line.
-- ARGV[1] the place to start behind; empty for the first jobs
-- ARGV[2] the member at that place to start behind
-- ARGV[3] how many at most
-- Returns: place and member of the last job looked at, if there may be more behind it, otherwise
--   two empty strings; then place and member of each.

local max, from, after = tonumber(ARGV[3]), ARGV[1] == '' and '-inf' or ARGV[1], ARGV[1] ~= '' and ARGV[2]
local first = tonumber(ARGV[1])

local function is_behind(place, member)
  if not after or tonumber(place) > first then return true end
  for at = 1, MEMBER do
    local one, other = byte(member, at), byte(after, at)
    if one ~= other then return one > other end
  end
  return false
end

-- No more jobs share a place than fit into a run.
local singles = call('ZRANGEBYSCORE', READY, from, '+inf', 'WITHSCORES', 'LIMIT', 0, max + RUN_MAX)
local answer, n, looked, next_single, rank, run, place = { '', '' }, 0, 0, 1, 0

local function add(member, at)
  if n < max and is_behind(at, member) then
    n = n + 1
    answer[2 * n + 1], answer[2 * n + 2] = at, member
  end
end

local function add_singles(till)
  while n < max and singles[next_single] and tonumber(singles[next_single + 1]) <= till do
    add(singles[next_single], singles[next_single + 1])
    next_single = next_single + 2
  end
end

while n < max and looked < LOOKS_MAX do
  run, place = unpack(call('ZRANGEBYSCORE', RUNS, from, '+inf', 'WITHSCORES', 'LIMIT', rank, 1))
  add_singles(run and tonumber(place) or math.huge)
  if not run then return answer end
  local voids = voids_in(run)
  for at = 1, #run, MEMBER do
    if not voids or not voids[at] then add(sub(run, at, at + MEMBER - 1), place) end
  end
  looked, rank = looked + #run / MEMBER, rank + 1
end
if n == max and max > 0 then
  answer[1], answer[2] = answer[2 * n + 1], answer[2 * n + 2]
else
  answer[1], answer[2] = place, sub(run, -MEMBER)
end
return answer
