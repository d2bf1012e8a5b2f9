-- For each unique key: the job that holds it, or that had it last and is still live.
-- ARGV[1] now
-- ARGV[2] and on: the keys
-- Returns: for each key nothing, or: the job, and the digit of its state; no digit if the job is
--   removed.

local now, answer = tonumber(ARGV[1]), {}
for i = 2, #ARGV do
  local holding = call('HGET', UNIQUE, ARGV[i])
  local id = holding and sub(holding, 1, 16)
  local record = id and record_of(id)
  local state = record and (call('HEXISTS', LEASES, id) == 1 and '2' or sub(record, 1, 1)) or ''
  local lives = state ~= '' and state < '4'
  answer[i - 1] = (lives or holder_of(ARGV[i], now)) and id .. state or ''
end
return answer
