-- Seizes jobs of expired claims. A repeated call returns the jobs that the first one seized.
-- ARGV[1] the number of the new claim
-- ARGV[2] the holder of the new claim: see worker_of
-- ARGV[3] until
-- ARGV[4] now
-- ARGV[5] a claim that ends later than this was made before the clock was set back
-- then for each expired claim: number, how many of its jobs at most
-- Returns: see handed_out, and the leases; an empty table if there is no job.

-- A Redis without free memory refuses a command that may need more, but only as the first write of
-- a script. So this harmless write lets claimed jobs still be kept and ended.
call('HDEL', LEASES, '')

local number, now, far = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5])
if call('ZSCORE', TERMS, number) then return handed_out_again(held_under(number)) end

local seized, left, rests = {}, {}, {}

-- How many bytes a claim may have, and how many ids a call may read for it: the server does nothing
-- else meanwhile.
local BYTES_MAX, LOOKS_MAX = 16777216, 20000
local bytes, looked = 0, 0

-- A worker that seized the job and died before it settled it did not run it: the lease keeps the
-- name of the first worker that vanished.
local function vanished(lease, former, worker)
  local bar = 19 + #place_of(lease)
  if sub(lease, bar, bar) == '|' then return sub(lease, bar) end
  return '|' .. former .. sub(lease, 9, 9) .. worker
end

local function take_over(former, max)
  local till = tonumber(call('ZSCORE', TERMS, former))
  if not till or (till >= now and till <= far) then return end
  if bytes >= BYTES_MAX or looked >= LOOKS_MAX then return end
  local before = call('HSTRLEN', HELD, former)
  local held, rest = first_held(former, math.max(max, 1))
  looked = looked + (before - #rest) / 16
  if #held == 0 then return close_claim(former) end
  local worker = worker_of(call('HGET', CLAIMS, former)) or ''
  local taken = 0
  while taken < math.min(max, #held) and bytes < BYTES_MAX do
    taken = taken + 1
    local id, lease = held[taken].id, held[taken].lease
    bytes = bytes + call('HSTRLEN', PAYLOADS, id)
    seized[#seized + 1] = {
      id = id, place = tonumber(place_of(lease)), arrival = micros_at(lease, 11),
      lease = concat({ number, '0', sub(lease, 10, 18), place_of(lease), vanished(lease, former, worker) }),
    }
  end
  if taken > 0 then left[former] = taken end
  local untouched = {}
  for i = taken + 1, #held do untouched[#untouched + 1] = held[i].id end
  rests[former] = concat(untouched) .. rest
end

for at = 6, #ARGV, 2 do take_over(ARGV[at], tonumber(ARGV[at + 1])) end
if #seized == 0 then return {} end
table.sort(seized, stands_before)
local ids, leases = {}, {}
for i, run in ipairs(seized) do ids[i], leases[2 * i - 1], leases[2 * i] = run.id, run.id, run.lease end
write('HSET', LEASES, leases)
for former, rest in pairs(rests) do call('HSET', HELD, former, rest) end
leave_claims(left)
open_claim(number, ARGV[2], ARGV[3], ids)
return handed_out_again(held_under(number))
