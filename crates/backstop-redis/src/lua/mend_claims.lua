-- Recounts the jobs of claims, and closes claims without jobs. Moves the tail of the ready line
-- behind every place in use.
-- ARGV    numbers of claims
-- Returns: how many were wrong.

local mended = 0
for _, number in ipairs(ARGV) do
  local held = #held_under(number)
  local is_whole = call('ZSCORE', TERMS, number) and call('HEXISTS', CLAIMS, number) == 1
  if held == 0 or not is_whole then
    close_claim(number)
    mended = mended + 1
  elseif call('HGET', LEFT, number) ~= tostring(held) then
    call('HSET', LEFT, number, held)
    mended = mended + 1
  end
end

local seq = tonumber(call('HGET', META, 'seq')) or 0
for level = 0, 3 do
  local first = place(level, 0)
  for _, line in ipairs({ READY, RUNS }) do
    local taken = call('ZREVRANGEBYSCORE', line, first + GIVEN_OUT - 1, first, 'WITHSCORES', 'LIMIT', 0, 1)
    if taken[2] then seq = math.max(seq, tonumber(taken[2]) - first + 1) end
  end
end
if call('EXISTS', RECORDS) == 1 then call('HSET', META, 'seq', string.format('%.0f', seq)) end
return mended
