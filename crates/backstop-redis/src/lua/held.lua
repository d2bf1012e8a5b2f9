-- The jobs of a claim, and what a worker gets of them.

-- Whether one job is before the other in the line. Jobs of a run share their place.
local function stands_before(one, other)
  if one.place ~= other.place then return one.place < other.place end
  return one.arrival < other.arrival
end

-- A holder is: the time of the claim, space, the queues of the claim, newline, worker.
local function worker_of(holder) return holder and string.match(holder, '^[^\n]*\n(.*)$') end

local function since_of(holder) return holder and string.match(holder, '^(-?%d+) ') end

-- The jobs that are left of a claim, in the order of their places.
local function held_under(number)
  local packed, all = call('HGET', HELD, number) or '', {}
  for first = 1, #packed, 16 do all[#all + 1] = sub(packed, first, first + 15) end
  local leases, held = read(LEASES, all), {}
  for i, id in ipairs(all) do
    local lease = leases[i]
    if lease and sub(lease, 1, 8) == number then
      held[#held + 1] = { id = id, lease = lease, place = tonumber(place_of(lease)), arrival = micros_at(lease, 11) }
    end
  end
  table.sort(held, stands_before)
  return held
end

-- The first jobs of a claim, at most `max`, in the order it was opened with, which is that of their
-- places; and the ids behind them, in one piece. A claim of hundreds of jobs is seized in small
-- parts, and no part should read all of it again.
local function first_held(number, max)
  local packed, held, first = call('HGET', HELD, number) or '', {}, 1
  while first <= #packed and #held < max do
    local some = {}
    for at = first, math.min(#packed, first + 16 * (max - #held) - 1), 16 do some[#some + 1] = sub(packed, at, at + 15) end
    for i, lease in ipairs(read(LEASES, some)) do
      if lease and sub(lease, 1, 8) == number then held[#held + 1] = { id = some[i], lease = lease } end
    end
    first = first + 16 * #some
  end
  return held, sub(packed, first)
end

-- What a worker gets of these jobs: ids, records, payloads that are not in their record, and for
-- jobs that have a history: index, history.
local function handed_out(ids, records, payloads)
  local histories = {}
  for i = 1, #ids do
    local record = records[i]
    -- A damaged job is not handed out, and does not block the others.
    if record and #record < 80 then
      records[i] = false
    elseif record and has_history(flags_of(record)) then
      histories[#histories + 1] = i
      histories[#histories + 1] = call('HGET', HISTORIES, ids[i])
    end
  end
  return { concat(ids), records, payloads, histories }
end

local function handed_out_again(held)
  local ids, leases = {}, {}
  for i, run in ipairs(held) do ids[i], leases[i] = run.id, run.lease end
  local answer = handed_out(ids, read(RECORDS, ids), read(PAYLOADS, ids))
  answer[5] = leases
  return answer
end
