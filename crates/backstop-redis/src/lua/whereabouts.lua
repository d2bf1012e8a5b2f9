-- Whether jobs are known here.
-- ARGV    ids
-- Answers: for each id: H here, G and the queue it was moved to, or nothing.

local records, moved, answer = read(RECORDS, ARGV), read(MOVED, ARGV), {}
for i = 1, #ARGV do
  answer[i] = records[i] and 'H' or moved[i] and 'G' .. moved[i] or ''
end
return answer
