-- Applies an action to jobs.
-- ARGV[1] now
-- ARGV[2] now, in the format of records
-- ARGV[3] the action: R retry, C cancel, D delete
-- ARGV[4] a letter for each state: A if the action applies there, or why it does not
-- ARGV[5] the state that a job must have; a job in another state is skipped; empty for any state
-- ARGV[6] the reason that a cancelled job shows
-- then ids
-- Returns: for each id: A applied, - skipped, N not found, B damaged, M being moved to another
--   queue, F its queue is full, T and the job that holds its unique key, or a letter of ARGV[4].

local now, at, action, wanted = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[5]
local max_size = action == 'R' and tonumber(call('HGET', META, 'max_size'))
local live = max_size and live_count()

local function leave(id, record, lease, state)
  if lease then
    call('HDEL', LEASES, id)
    leave_claims({ [sub(lease, 1, 8)] = 1 })
  elseif state == '1' then
    leave_ready(member_of(state, record, id))
  else
    call('ZREM', LINES[state], member_of(state, record, id))
  end
  if state == '5' then remove_death(id) end
end

local function retry(id, record, is_final)
  if is_final then
    local requeues = struct.pack('>I4', struct.unpack('>I4', record, 54) + 1)
    record = sub(record, 1, 18) .. '0' .. '\0\0\0\0' .. sub(record, 24, 53) .. requeues .. sub(record, 58)
    if live then live = live + 1 end
  end
  record = '1' .. NEVER .. sub(record, 10, 27) .. at .. sub(record, 36)
  write_record(id, record)
  call('ZADD', READY, place(level_of(record), tail(1)), member_of('1', record, id))
end

local function cancel(id, record)
  record = '6' .. at .. sub(record, 10, 18) .. ARGV[6] .. sub(record, 20)
  write_record(id, record)
  call('ZADD', CANCELLED, 0, member_of('6', record, id))
  call('HINCRBY', META, 'cancelled', 1)
end

local function delete(id, record)
  if has_key(flags_of(record)) then drop_key(id, record) end
  call('HDEL', RECORDS, id)
  call('HDEL', ENDS, id)
  drop_payloads({ id })
  call('HDEL', HISTORIES, id)
  call('ZREM', ORDER, member_of('1', record, id))
end

local function amend(id)
  local record = record_of(id)
  if not record then return 'N' end
  if not is_whole(record) then return 'B' end
  local lease = call('HGET', LEASES, id)
  local state = lease and '2' or sub(record, 1, 1)
  if wanted ~= '' and wanted ~= state then return '-' end
  local verdict = sub(ARGV[4], state + 1, state + 1)
  if verdict ~= 'A' then return verdict end
  local is_final = state == '4' or state == '5' or state == '6'
  if is_final and call('HEXISTS', MOVING, id) == 1 then return 'M' end
  if is_final and live and live >= max_size then return 'F' end
  if action == 'R' and is_final and has_key(flags_of(record)) then
    local holder = holder_of(key_of(record), now)
    if holder and holder ~= id then return 'T' .. holder end
    take_key(id, record)
  end
  leave(id, record, lease, state)
  if action == 'R' then retry(id, record, is_final) end
  if action == 'C' then cancel(id, record) end
  if action == 'D' then delete(id, record) end
  return 'A'
end

local answer = {}
for i = 7, #ARGV do answer[#answer + 1] = amend(ARGV[i]) end
pass_voids()
return answer
