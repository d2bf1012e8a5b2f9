-- Gives a new end to claims whose workers sent no heartbeat since the clock was set back.
-- ARGV    for each claim: number, the end it had, the end it gets
-- Returns: nothing.

for at = 1, #ARGV, 3 do
  local till = call('ZSCORE', TERMS, ARGV[at])
  -- A heartbeat in the meantime has set another end, which stays.
  if till and tonumber(till) == tonumber(ARGV[at + 1]) then call('ZADD', TERMS, ARGV[at + 2], ARGV[at]) end
end
return {}
