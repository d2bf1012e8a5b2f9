-- Adds held records to their indexes, and makes heads for their keys where they are missing.
-- ARGV[1] now
-- then names of records
-- Returns: how many entries were missing.

local mended = 0

local function mend(field, record)
  local key = sub(field, 1, -10)
  mended = mended + call('ZADD', PLACES, 'NX', 0, field) + call('ZADD', AGES, 'NX', 0, age_of(key, field, record))
  -- A record without its payload is handled with an empty one; it does not vanish.
  mended = mended + call('HSETNX', PAYLOADS, field, '')
  -- A new head is due now, so that a worker looks at the key: its watermark is lost.
  mended = mended + call('HSETNX', HEADS, key, sub(EMPTY, 1, 21) .. ARGV[1] .. sub(EMPTY, 30))
end

for i = 2, #ARGV do
  local record = call('HGET', RECORDS, ARGV[i])
  if record and #record >= 25 then mend(ARGV[i], record) end
end
return mended
