-- Unique keys: which job holds them, and when they are freed.

local function is_over(till, now)
  return till ~= nil and now >= till
end

local function holds(states, state)
  return bit.band(states, bit.lshift(1, state)) ~= 0
end

-- The job that holds a unique key now. ended: id -> state, of jobs whose end is decided and not
-- written yet.
local function holder_of(key, now, ended)
  local holding = call('HGET', UNIQUE, key)
  if not holding or is_over(tonumber(sub(holding, 18)), now) then return nil end
  local id = sub(holding, 1, 16)
  local record = record_of(id)
  -- Without a record the job is removed, and its last state left the key behind. A job whose record
  -- is damaged keeps its key.
  if record and #record >= 80 then
    local state = ended and ended[id] or call('HEXISTS', LEASES, id) == 1 and 2 or byte(record) - 48
    if not holds(byte(holding, 17), state) then return nil end
  end
  return id
end

local function take_key(id, record)
  local key = key_of(record)
  call('HSET', UNIQUE, key, id .. sub(record, 58, 78))
  call('ZREM', LAPSES, key)
end

-- Frees the key of a job that is deleted, whatever its state.
local function drop_key(id, record)
  local key = key_of(record)
  local holding = call('HGET', UNIQUE, key)
  if not holding or sub(holding, 1, 16) ~= id then return end
  call('HDEL', UNIQUE, key)
  call('ZREM', LAPSES, key)
end

-- Frees the key of a job that is being removed, unless the state it ended in still holds the key.
local function leave_key(id, record, state, now)
  local key = key_of(record)
  local holding = call('HGET', UNIQUE, key)
  if not holding or sub(holding, 1, 16) ~= id then return end
  local till = tonumber(sub(record, 59, 78))
  if not holds(byte(record, 58), state) or is_over(till, now) then
    call('HDEL', UNIQUE, key)
  elseif till then
    call('ZADD', LAPSES, till, key)
  end
end
