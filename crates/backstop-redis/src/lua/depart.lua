-- The last step of a move: removes jobs that are in their new queue, and unmarks those that the
-- queue refused.
-- ARGV    for each job: id, token, A if the queue took it or T if not
-- Returns: how many moves ended with this.

local ended = 0

local function remove(id, record, to)
  -- Write this first, so that no job is removed if a full Redis refuses it.
  call('HSET', MOVED, id, to)
  local death = call('HGET', DEATHS, id)
  if is_whole(record) then
    local state = sub(record, 1, 1)
    call('ZREM', LINES[state], member_of(state, record, id))
    call('ZREM', ORDER, member_of('1', record, id))
    if has_key(flags_of(record)) then drop_key(id, record) end
  elseif death then
    call('ZREM', DEAD, sub(death, 9) .. id)
    call('ZREM', ORDER, sub(death, 17) .. id)
  end
  remove_death(id)
  call('HDEL', RECORDS, id)
  call('HDEL', ENDS, id)
  drop_payloads({ id })
  call('HDEL', HISTORIES, id)
end

for from = 1, #ARGV, 3 do
  local id = ARGV[from]
  local mark, record = call('HGET', MOVING, id), record_of(id)
  if mark and sub(mark, 1, 8) == ARGV[from + 1] then
    if record and ARGV[from + 2] == 'A' then remove(id, record, sub(mark, 17)) end
    call('HDEL', MOVING, id)
    ended = ended + 1
  end
end
return ended
