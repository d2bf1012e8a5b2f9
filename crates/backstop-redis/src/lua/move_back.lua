-- Gives claims a new end whose workers were not heard of since the clock was set back.
-- for each claim: number, the end it had, the end it gets
-- Answers: nothing.

for at = 1, #ARGV, 3 do
  local till = call('ZSCORE', TERMS, ARGV[at])
  -- Who beats meanwhile has said until when.
  if till and tonumber(till) == tonumber(ARGV[at + 1]) then call('ZADD', TERMS, ARGV[at + 2], ARGV[at]) end
end
return {}
