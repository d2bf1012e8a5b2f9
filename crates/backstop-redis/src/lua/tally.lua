-- Whether the parts of a queue agree with each other: the price of a few lengths, whatever there is
-- in it. ARGV    nothing Answers: records, places in order, places in the lines of all states;
-- payloads apart from their records, and how many should be; claims by their four parts; dead jobs
-- by their line and their two parts; jobs on their way to another queue.

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
