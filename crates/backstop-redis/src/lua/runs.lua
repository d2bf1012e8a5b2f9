-- Runs: jobs that came in together stand in the ready line as one piece, under one place, in order
-- of arrival. A job leaves it at the front, with a claim. One that is taken out elsewhere stays in
-- the piece and counts as void. A job that comes back stands by itself, at the place of its run,
-- and so before what is left of that.

local RUN_MAX, MEMBER = 250, 24
-- Members of runs looked at in one go: where many are void, somebody has to pass them.
local LOOKS_MAX = 50000

local function ready_count()
  if call('EXISTS', RUNS) == 0 then return call('ZCARD', READY) end
  local in_runs = (tonumber(call('HGET', META, 'in_runs')) or 0) - call('SCARD', VOID)
  return call('ZCARD', READY) + math.max(0, in_runs)
end

local function live_count()
  return call('ZCARD', SCHEDULED) + ready_count() + call('ZCARD', RETRYING) + call('HLEN', LEASES)
end

-- These have left their runs.
local function leave_runs(count, voids)
  write('SREM', VOID, voids)
  if call('EXISTS', RUNS) == 1 then
    call('HINCRBY', META, 'in_runs', -count)
  else
    call('HDEL', META, 'in_runs')
    call('DEL', VOID)
  end
end

-- Whether a script has taken somebody out of a run.
local has_voided = false

local function leave_ready(member)
  if call('ZREM', READY, member) == 1 or call('EXISTS', RUNS) == 0 then return end
  call('SADD', VOID, member)
  has_voided = true
end

-- Where in a run those begin that are void; nothing if none can be.
local function voids_in(run)
  if call('EXISTS', VOID) == 0 then return nil end
  local members, voids = {}, {}
  for at = 1, #run, MEMBER do members[#members + 1] = sub(run, at, at + MEMBER - 1) end
  for i, is_void in ipairs(call('SMISMEMBER', VOID, unpack(members))) do
    if is_void == 1 then voids[(i - 1) * MEMBER + 1] = members[i] end
  end
  return voids
end

-- Who stands first in line, at most so many: ids, places; and the parts of the line they stand in,
-- for take_out.
local function first_in_line(max)
  local singles, next_single = call('ZRANGE', READY, 0, max - 1, 'WITHSCORES'), 1
  local ids, places, parts, n, looked, rank = {}, {}, {}, 0, 0, 0

  local function add_singles(till)
    local before = n
    while n < max and singles[next_single] and tonumber(singles[next_single + 1]) <= till do
      n = n + 1
      ids[n], places[n] = sub(singles[next_single], 9), singles[next_single + 1]
      next_single = next_single + 2
    end
    if n > before then parts[#parts + 1] = { count = n - before } end
  end

  local function add_run(run, place)
    local voids, before, at = voids_in(run), n, 1
    while at < #run and n < max do
      if not voids or not voids[at] then
        n = n + 1
        ids[n], places[n] = sub(run, at + 8, at + 23), place
      end
      at = at + MEMBER
    end
    looked = looked + at / MEMBER
    parts[#parts + 1] = { run = run, place = place, voids = voids or {}, passed = at - 1, count = n - before }
  end

  while n < max and looked < LOOKS_MAX do
    local run, place = unpack(call('ZRANGE', RUNS, rank, rank, 'WITHSCORES'))
    add_singles(place and tonumber(place) or math.huge)
    if not run then break end
    if n < max then add_run(run, place) end
    rank = rank + 1
  end
  return ids, places, parts
end

-- Where in a run the count-th of those ends that are not void.
local function end_of(part, count)
  local at = 1
  while count > 0 do
    if not part.voids[at] then count = count - 1 end
    at = at + MEMBER
  end
  return at - 1
end

-- Takes the first of these out of the line.
local function take_out(count, parts)
  local singles, runs, gone, voids, rest = 0, 0, 0, {}, nil
  for _, part in ipairs(parts) do
    local taken = math.min(count, part.count)
    if taken < part.count and taken == 0 then break end
    count = count - taken
    if not part.run then
      singles = singles + taken
    else
      local passed = taken == part.count and part.passed or end_of(part, taken)
      for at, member in pairs(part.voids) do
        if at <= passed then voids[#voids + 1] = member end
      end
      runs, gone = runs + 1, gone + passed / MEMBER
      if passed < #part.run then rest = { part.place, sub(part.run, passed + 1) } end
    end
    if taken < part.count or rest then break end
  end
  if singles > 0 then call('ZREMRANGEBYRANK', READY, 0, singles - 1) end
  if runs == 0 then return end
  call('ZREMRANGEBYRANK', RUNS, 0, runs - 1)
  if rest then call('ZADD', RUNS, rest[1], rest[2]) end
  leave_runs(gone, voids)
end

-- Removes runs at the front in which nobody stands any more: whoever looks for the first in line
-- need not pass them.
local function pass_voids()
  if not has_voided then return end
  local _, _, parts = first_in_line(1)
  take_out(0, parts)
end

-- Makes the first runs of these places single members of the line, until so many are.
local function dissolve(max, from, till)
  local dissolved = 0
  while dissolved < max do
    local run, place = unpack(call('ZRANGEBYSCORE', RUNS, from, till, 'WITHSCORES', 'LIMIT', 0, 1))
    if not run then return end
    local voids, singles, gone = voids_in(run) or {}, {}, {}
    for at = 1, #run, MEMBER do
      if voids[at] then
        gone[#gone + 1] = voids[at]
      else
        singles[#singles + 1] = place
        singles[#singles + 1] = sub(run, at, at + MEMBER - 1)
      end
    end
    write('ZADD', READY, singles)
    call('ZREM', RUNS, run)
    leave_runs(#run / MEMBER, gone)
    dissolved = dissolved + #run / MEMBER
  end
end
