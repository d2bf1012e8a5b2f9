-- Who holds unique keys.
-- ARGV[1] now
-- ARGV[2] and on: the keys
-- Answers: for each key nothing, or: the holder, and the digit of its state; no digit if it is gone.

local now, answer = tonumber(ARGV[1]), {}
for i = 2, #ARGV do
  local id = holder_of(ARGV[i], now)
  local record = id and call('HGET', RECORDS, id)
  local state = record and (call('HEXISTS', LEASES, id) == 1 and '2' or sub(record, 1, 1)) or ''
  answer[i - 1] = id and id .. state or ''
end
return answer
