-- Takes over jobs of expired claims; what the same call took before, if it is repeated.
-- ARGV[1] the seizer's number
-- ARGV[2] the queues the seizure reaches into, newline, the seizer
-- ARGV[3] until
-- ARGV[4] now
-- ARGV[5] a claim that ends later than this was made before the clock was set back
-- then for each claim: number, at most so many of its jobs
-- Answers: see handed_out, and the leases; nothing if there is nothing.

-- A full Redis refuses what may need memory, but only as the first write of a script: what is claimed can still be kept and ended.
call('HDEL', LEASES, '')

local number, now, far = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5])
if call('ZSCORE', TERMS, number) then return handed_out_again(held_under(number)) end

local ids, leases, left = {}, {}, {}

-- As much as a claim may carry, and no more places looked at than that takes: the server does nothing else meanwhile.
local BYTES_MAX, LOOKS_MAX = 16777216, 20000
local bytes, looked = 0, 0

-- A seizer that died before it judged did not run the job: the first to vanish stays the one to name.
local function vanished(lease, former, worker)
  local bar = 19 + #place_of(lease)
  if sub(lease, bar, bar) == '|' then return sub(lease, bar) end
  return '|' .. former .. sub(lease, 9, 9) .. worker
end

local function take_over(former, max)
  local till = tonumber(call('ZSCORE', TERMS, former))
  if not till or (till >= now and till <= far) then return end
  if bytes >= BYTES_MAX or looked >= LOOKS_MAX then return end
  looked = looked + call('HSTRLEN', HELD, former) / 16
  local held = held_under(former)
  if #held == 0 then close_claim(former) end
  local worker = worker_of(call('HGET', CLAIMS, former)) or ''
  for i = 1, math.min(max, #held) do
    if bytes >= BYTES_MAX then return end
    bytes = bytes + call('HSTRLEN', PAYLOADS, held[i].id)
    local id, lease = held[i].id, held[i].lease
    ids[#ids + 1] = id
    leases[#leases + 1] = id
    leases[#leases + 1] = concat({ number, '0', sub(lease, 10, 18), place_of(lease), vanished(lease, former, worker) })
    left[former] = (left[former] or 0) + 1
  end
end

for at = 6, #ARGV, 2 do take_over(ARGV[at], tonumber(ARGV[at + 1])) end
if #ids == 0 then return {} end
write('HSET', LEASES, leases)
leave_claims(left)
open_claim(number, ARGV[2], ARGV[3], ids)
return handed_out_again(held_under(number))
