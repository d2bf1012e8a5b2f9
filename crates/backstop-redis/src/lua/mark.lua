-- The first step of a move: marks ended jobs that are to go to another queue. They stay listed
-- until the last step.
-- ARGV[1] token: the number of this move
-- ARGV[2] now, in the format of records
-- ARGV[3] the queue they go to
-- ARGV[4] a letter for each state: A if a move applies there, or why it does not
-- ARGV[5] the state that a job must have; a job in another state is skipped; empty for any state
-- then ids
-- Returns: for each id: A marked, M marked before, - skipped, N not found, B damaged, or a letter
--   of ARGV[4].

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
