-- Forgets where jobs were moved to, once no queue knows them any more.
-- ARGV    for each job: id, the queue it was moved to
-- Returns: how many were forgotten.

local forgotten = 0
for at = 1, #ARGV, 2 do
  if call('HGET', MOVED, ARGV[at]) == ARGV[at + 1] then
    forgotten = forgotten + call('HDEL', MOVED, ARGV[at])
  end
end
return forgotten
