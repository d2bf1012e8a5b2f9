-- Runs: jobs that were enqueued together are one member of the ready line, under one place, in
-- order of arrival. A claim takes jobs from the front of a run. A job that leaves a run in another
-- way stays in the member and counts as void. A job that comes back is a member by itself, at the
-- place of its run, and so before the rest of it.

local RUN_MAX, MEMBER = 250, 24
-- How many jobs of runs a script reads in one go: if many are void, a script has to skip them.
local LOOKS_MAX = 50000

local function ready_count()
  if call('EXISTS', RUNS) == 0 then return call('ZCARD', READY) end
  local in_runs = (tonumber(call('HGET', META, 'in_runs')) or 0) - call('SCARD', VOID)
  return call('ZCARD', READY) + math.max(0, in_runs)
end

local function live_count()
  return call('ZCARD', SCHEDULED) + ready_count() + call('ZCARD', RETRYING) + call('HLEN', LEASES)
end

-- Counts jobs out that have left their runs, and forgets that they are void.
local function leave_runs(count, voids)
  write('SREM', VOID, voids)
  if call('EXISTS', RUNS) == 1 then
    call('HINCRBY', META, 'in_runs', -count)
  else
    call('HDEL', META, 'in_runs')
    call('DEL', VOID)
  end
end

-- Whether this script has voided a job of a run.
local has_voided = false

local function leave_ready(member)
  if call('ZREM', READY, member) == 1 or call('EXISTS', RUNS) == 0 then return end
  call('SADD', VOID, member)
  has_voided = true
end

-- The void jobs of a run, by their offset; nil if there can be none.
local function voids_in(run)
  if call('EXISTS', VOID) == 0 then return nil end
  local members, voids = {}, {}
  for at = 1, #run, MEMBER do members[#members + 1] = sub(run, at, at + MEMBER - 1) end
  for i, is_void in ipairs(call('SMISMEMBER', VOID, unpack(members))) do
    if is_void == 1 then voids[(i - 1) * MEMBER + 1] = members[i] end
  end
  return voids
end

-- The first jobs of the ready line, at most `max`: ids, places; and the parts of the line that they
-- are in, for take_out.
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

-- The offset in a run where its count-th job ends that is not void.
local function end_of(part, count)
  local at = 1
  while count > 0 do
    if not part.voids[at] then count = count - 1 end
    at = at + MEMBER
  end
  return at - 1
end

-- Removes the first `count` jobs of these parts from the line.
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

-- Removes runs at the front that have only void jobs, so that the next search for the first job
-- need not skip them.
local function pass_voids()
  if not has_voided then return end
  local _, _, parts = first_in_line(1)
  take_out(0, parts)
end

-- Turns the jobs of the first runs between two places into single members of the line, until there
-- are `max`.
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
