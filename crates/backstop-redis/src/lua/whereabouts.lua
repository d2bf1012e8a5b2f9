-- Whether this queue knows jobs.
-- ARGV    ids
-- Returns: for each id: H here, L and the queue it is being moved to, G and the queue it was moved
--   to, or nothing.

local records, moving, moved, answer = read(RECORDS, ARGV), read(MOVING, ARGV), read(MOVED, ARGV), {}
for i = 1, #ARGV do
  answer[i] = records[i] and (moving[i] and 'L' .. sub(moving[i], 17) or 'H') or moved[i] and 'G' .. moved[i] or ''
end
return answer
