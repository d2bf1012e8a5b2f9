-- Puts records where they belong, and makes keys known that keep some.
-- ARGV[1] now
-- then names of records
-- Answers: how much was missing.

local mended = 0

local function mend(field, record)
  local key = sub(field, 1, -10)
  mended = mended + call('ZADD', PLACES, 'NX', 0, field) + call('ZADD', AGES, 'NX', 0, age_of(key, field, record))
  -- Without its payload a record is handled as far as that goes; it does not vanish.
  mended = mended + call('HSETNX', PAYLOADS, field, '')
  -- A key that was lost is to be looked at: where it stood, nobody knows any more.
  mended = mended + call('HSETNX', HEADS, key, sub(EMPTY, 1, 21) .. ARGV[1] .. sub(EMPTY, 30))
end

for i = 2, #ARGV do
  local record = call('HGET', RECORDS, ARGV[i])
  if record and #record >= 25 then mend(ARGV[i], record) end
end
return mended
