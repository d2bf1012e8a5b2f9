-- The second step of a move: takes jobs in from another queue, ready, with all their attempts
-- again. The script stores the outcome of each move, so that a repeated call, however late, returns
-- the same outcome and moves nothing twice.
-- ARGV[1] the queue they come from
-- then for each job: id, token, now in the format of records, record, payload or nothing if the
--   record contains it, history or nothing
-- Returns: for each job: A it is here; F the queue is full; or T and the job that holds its unique
--   key or has its id.

local verdicts, seconds = {}, call('TIME')[1]
local max_size = tonumber(call('HGET', META, 'max_size'))
local live = max_size and live_count()

local function judge(id, at, record)
  -- If this move had brought the job, `received` would say so: the job here is another one of the
  -- same id, perhaps itself being moved to the queue that this one comes from. Both stay.
  if call('HEXISTS', RECORDS, id) == 1 then return 'T' .. id end
  if max_size and live >= max_size then return 'F' end
  local holder = has_key(flags_of(record)) and holder_of(key_of(record), micros_at(at, 1))
  if holder and holder ~= id then return 'T' .. holder end
  return 'I'
end

local function take_in(id, at, record, payload, history)
  local requeues = struct.pack('>I4', struct.unpack('>I4', record, 54) + 1)
  record = '1' .. NEVER .. sub(record, 10, 18) .. '0' .. '\0\0\0\0' .. sub(record, 24, 27) .. at
    .. sub(record, 36, 53) .. requeues .. sub(record, 58)
  call('HSET', RECORDS, id, record)
  if payload ~= '' then keep_payloads({ id, payload }) end
  if history ~= '' then call('HSET', HISTORIES, id, history) end
  call('ZADD', ORDER, 0, member_of('1', record, id))
  call('ZADD', READY, digits(place(level_of(record), tail(1))), member_of('1', record, id))
  if has_key(flags_of(record)) then take_key(id, record) end
  call('HDEL', MOVED, id)
  if live then live = live + 1 end
end

for from = 2, #ARGV, 6 do
  local id, at, record = ARGV[from], ARGV[from + 2], ARGV[from + 3]
  local move = id .. ARGV[from + 1]
  local decided = call('HGET', RECEIVED, move)
  if decided then
    verdicts[#verdicts + 1] = string.match(sub(decided, 11), '^[AF]') or sub(decided, 11, 27)
  else
    local verdict = judge(id, at, record)
    local told = verdict == 'I' and 'A' or verdict
    call('HSET', RECEIVED, move, string.format('%010d', seconds) .. told .. ARGV[1])
    if verdict == 'I' then take_in(id, at, record, ARGV[from + 4], ARGV[from + 5]) end
    verdicts[#verdicts + 1] = told
  end
end
return verdicts
