-- Makes jobs ready whose time has come.
-- ARGV    for each job: its state (0 scheduled, 3 retrying), its member in that line
-- Returns: how many became ready.

local records, ready = {}, {}
for at = 1, #ARGV, 2 do
  local member = ARGV[at + 1]
  local id = sub(member, 17)
  if call('ZREM', LINES[ARGV[at]], member) == 1 then
    local record = call('HGET', RECORDS, id)
    if record and is_whole(record) then
      records[#records + 1] = id
      records[#records + 1] = '1' .. sub(record, 2)
      ready[#ready + 1] = level_of(record)
      ready[#ready + 1] = sub(member, 9)
    end
  end
end
local seq = #ready > 0 and tail(#ready / 2)
for at = 1, #ready, 2 do
  ready[at] = digits(place(ready[at], seq + (at - 1) / 2))
end
write('HSET', RECORDS, records)
write('ZADD', READY, ready)
return #ready / 2
