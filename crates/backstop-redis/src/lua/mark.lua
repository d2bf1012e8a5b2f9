-- The first step of a move: notes that ended jobs are on their way to another queue. Until the last
-- step they stay listed. ARGV[1] token: the number of this move ARGV[2] now, as records have it
-- ARGV[3] the queue they go to ARGV[4] a letter for each state: A if it applies there, or why it
-- does not ARGV[5] the state a job must be in to be meant at all; empty if any then ids Answers:
-- for each id: A marked, M marked before, - not meant, N not found, B not readable, or a letter of
-- ARGV[4].

local mark, wanted, marks, answer = ARGV[1] .. ARGV[2] .. ARGV[3], ARGV[5], {}, {}

local function verdict_on(id)
  local record = record_of(id)
  if not record then return 'N' end
  if not is_whole(record) then return 'B' end
  local state = call('HEXISTS', LEASES, id) == 1 and '2' or sub(record, 1, 1)
  if wanted ~= '' and wanted ~= state then return '-' end
  local verdict = sub(ARGV[4], state + 1, state + 1)
  if verdict == 'A' and call('HEXISTS', MOVING, id) == 1 then return 'M' end
  return verdict
end

for i = 6, #ARGV do
  local letter = verdict_on(ARGV[i])
  answer[#answer + 1] = letter
  if letter == 'A' then
    marks[#marks + 1] = ARGV[i]
    marks[#marks + 1] = mark
  end
end
write('HSET', MOVING, marks)
return answer
