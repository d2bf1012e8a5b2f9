-- Claims ready jobs. A repeated claim returns those jobs of the first call that are still running.
-- ARGV[1] number
-- ARGV[2] the holder: see worker_of
-- ARGV[3] until
-- ARGV[4] how many jobs at most
-- ARGV[5] after how many bytes of payloads that are apart from their records no further job is
--   claimed
-- Returns: see handed_out; an empty table if there is no job.

local number, max = ARGV[1], tonumber(ARGV[4])
if call('ZSCORE', TERMS, number) then return handed_out_again(held_under(number)) end
if max == 0 or call('HGET', META, 'gate') == 'paused' then return {} end

local ids, places, parts = first_in_line(max)
local records, wanted = read(RECORDS, ids), #ids

-- Payloads that are apart from their records may be large: once the bytes suffice, the claim takes
-- fewer jobs.
local bytes_max = tonumber(ARGV[5])
local payloads, taken, bytes = {}, 0, 0
while taken < wanted and bytes < bytes_max do
  taken = taken + 1
  local record, payload = records[taken], false
  if record and #record >= 80 and not has_payload(flags_of(record)) then
    payload = call('HGET', PAYLOADS, ids[taken])
    bytes = bytes + (payload and #payload or 0)
  end
  payloads[taken] = payload
end
for i = taken + 1, wanted do ids[i], records[i] = nil, nil end

local leases, held, heads, count = {}, {}, {}, 0

-- The first bytes of the lease of a job with this record.
local function head_of(record)
  local flags = byte(record, 36)
  local a, b, c, d = byte(record, 20, 23)
  if a + b + c + d == 0 then flags = flags + 8 end
  if not heads[flags] then heads[flags] = number .. '0' .. string.char(flags) end
  return heads[flags]
end

for i = 1, taken do
  local record = records[i]
  -- A place without a job is left over from damage: this claim removes it.
  if record and #record >= 80 then
    local id = ids[i]
    count = count + 1
    held[count] = id
    leases[2 * count - 1], leases[2 * count] = id, head_of(record) .. sub(record, 37, 44) .. places[i]
  end
end
local answer = handed_out(ids, records, payloads)
take_out(taken, parts)
if taken == 0 then return {} end
if count > 0 then
  write('HSET', LEASES, leases)
  open_claim(number, ARGV[2], ARGV[3], held)
end
return answer
