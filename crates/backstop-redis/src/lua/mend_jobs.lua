-- Adds jobs to the lines that their records name.
-- ARGV[1] now
-- then ids
-- Returns: how many entries were missing.

local now, mended = tonumber(ARGV[1]), 0

-- A ready job whose place is lost goes before all jobs whose place is known, and is ordered by
-- arrival among others like it: microseconds since 2005 fit before the places given out until 2059.
local function lost_place(record)
  local since_2005 = micros_at(record, 37) - 1125899906842624
  local latest = LEVEL_WIDTH - GIVEN_OUT - 1
  return level_of(record) * LEVEL_WIDTH + math.max(0, math.min(since_2005, latest))
end

-- A job that was enqueued meanwhile is in its run: a place can be missing only if there are no
-- runs.
dissolve(5000, '-inf', '+inf')
local has_runs = call('EXISTS', RUNS) == 1

local function put(line, score, member)
  mended = mended + call('ZADD', line, 'NX', score, member)
end

-- A lease whose claim is gone holds nothing: the job becomes ready again at its place.
local function free(id, record, lease)
  call('HDEL', LEASES, id)
  put(READY, place_of(lease), member_of('1', record, id))
end

local function mend_key(id, record, state)
  if not has_key(flags_of(record)) or not holds(byte(record, 58), state) then return end
  if is_over(tonumber(sub(record, 59, 78)), now) or call('HEXISTS', UNIQUE, key_of(record)) == 1 then return end
  take_key(id, record)
  mended = mended + 1
end

-- Restores the lines of a dead job whose record is damaged.
local function mend_damaged(id)
  local death = call('HGET', DEATHS, id)
  if not death then return end
  put(ORDER, 0, sub(death, 17) .. id)
  put(DEAD, 0, sub(death, 9) .. id)
end

local function mend(id, record)
  local lease, state = call('HGET', LEASES, id), sub(record, 1, 1)
  put(ORDER, 0, member_of('1', record, id))
  -- A job without its payload cannot succeed. It fails where an operator sees it, and does not
  -- vanish.
  if not has_payload(flags_of(record)) then mended = mended + call('HSETNX', PAYLOADS, id, '\0\0\0\0') end
  mend_key(id, record, lease and 2 or byte(record) - 48)
  if lease and call('ZSCORE', TERMS, sub(lease, 1, 8)) then return end
  if lease then return free(id, record, lease) end
  if state == '1' and has_runs then return end
  put(LINES[state], state == '1' and lost_place(record) or 0, member_of(state, record, id))
end

for i = 2, #ARGV do
  local record = record_of(ARGV[i])
  if record and is_whole(record) then
    mend(ARGV[i], record)
  elseif record then
    mend_damaged(ARGV[i])
  end
end
return mended
