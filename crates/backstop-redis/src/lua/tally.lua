-- The sizes of the parts of a queue, which show whether they agree with each other. It costs a few
-- length commands, however large the queue is.
-- ARGV    nothing
-- Returns: records, members of order, members of the lines of all states; payloads apart from their
--   records, and how many there should be; claims by their four parts; dead jobs by their line and
--   their two parts; jobs that are being moved to another queue.

local placed = call('HLEN', LEASES) + ready_count()
for _, line in pairs(LINES) do
  if line ~= READY then placed = placed + call('ZCARD', line) end
end
return {
  call('HLEN', RECORDS), call('ZCARD', ORDER), placed,
  call('HLEN', PAYLOADS), tonumber(call('HGET', META, 'apart')) or 0,
  call('ZCARD', TERMS), call('HLEN', CLAIMS), call('HLEN', HELD), call('HLEN', LEFT),
  call('ZCARD', DEAD), call('HLEN', DEATHS), call('ZCARD', GROUPS), call('HLEN', MOVING),
}
