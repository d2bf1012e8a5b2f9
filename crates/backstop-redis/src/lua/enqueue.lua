-- Enqueues jobs. A job is refused if its id is known, its unique key is held, or its queue is full;
-- otherwise it is inserted.
-- ARGV[1] the level of all jobs, if all are ready, have no unique key, have different ids, and are
--   in order of arrival; otherwise empty
-- ARGV[2] how many dead letters the queue may hold, unless its own bound is set
-- ARGV[3] the reason and ARGV[4] the fingerprint of a job that gave way
-- then for each job: arrival id, record, payload or nothing if the record contains it
-- Returns: one letter per job (I inserted, S same id, D duplicate, F full, M moved); then for each
--   D the holder of the key, for each M the queue it was moved to; then 'new' if the queue was not
--   there before.

local HEAD = 4
local ids, count = {}, (#ARGV - HEAD) / 3
for i = 1, count do ids[i] = sub(ARGV[HEAD + 3 * i - 2], 9) end
local known = read(RECORDS, ids)
local moved = call('EXISTS', MOVED) == 1 and read(MOVED, ids) or {}
local bounds = call('HMGET', META, 'max_size', 'overflow', 'dead_max', 'enqueued')
local max_size = tonumber(bounds[1])

local function is_any_known()
  for i = 1, count do
    if known[i] or moved[i] then return true end
  end
  return false
end

local function add_payload(payloads, id, payload)
  payloads[#payloads + 1] = id
  payloads[#payloads + 1] = payload
end

-- Appends jobs of one level to the ready line.
local function line_up(level, members)
  local place = place(level, tail(math.ceil(count / RUN_MAX)))
  if count == 1 then return call('ZADD', READY, digits(place), members[1]) end
  for first = 1, count, RUN_MAX do
    call('ZADD', RUNS, digits(place), concat(members, '', first, math.min(first + RUN_MAX - 1, count)))
    place = place + 1
  end
  call('HINCRBY', META, 'in_runs', count)
end

-- All jobs are inserted alike, so no record is parsed.
local function take_all_in(level)
  local records, payloads, order, members = {}, {}, {}, {}
  for i = 1, count do
    local at, from, id = 2 * i, HEAD + 3 * i, ids[i]
    local member = ARGV[from - 2]
    records[at - 1], records[at] = id, ARGV[from - 1]
    if ARGV[from] ~= '' then add_payload(payloads, id, ARGV[from]) end
    order[at - 1], order[at] = '0', member
    members[i] = member
  end
  write('HSET', RECORDS, records)
  keep_payloads(payloads)
  write('ZADD', ORDER, order)
  line_up(level, members)
  call('HINCRBY', META, 'enqueued', count)
  return { string.rep('I', count), not bounds[4] and 'new' or nil }
end

if ARGV[1] ~= '' and not max_size and not is_any_known() then return take_all_in(tonumber(ARGV[1])) end

-- The script decides everything before the first write. fresh: id -> record, of the jobs of this
-- batch that are inserted; taken: the unique keys that they take; ended: id -> state, of jobs that
-- give way, which may be jobs of this batch too.
local READY_LETTER = byte('1')
local letters, answer = {}, { '' }
local fresh, taken, inserted, ready_total, ended, victims = {}, {}, {}, 0, {}, {}
local live, dead, dead_max, lines = 0, 0, 0, {}
if max_size then
  live = live_count()
  dead, dead_max = call('ZCARD', DEAD), tonumber(bounds[3]) or tonumber(ARGV[2])
end

-- The jobs of a level that may give way, in line order: never more of them than new jobs.
local function line_of(level)
  if not lines[level] then
    local from, till = digits(level * LEVEL_WIDTH), '(' .. digits((level + 1) * LEVEL_WIDTH)
    dissolve(count, from, till)
    lines[level] = { next = 1, members = call('ZRANGEBYSCORE', READY, from, till, 'LIMIT', 0, count) }
  end
  return lines[level]
end

local function first_to_give_way()
  for level = 3, 0, -1 do
    local line = line_of(level)
    while line.members[line.next] do
      local member = line.members[line.next]
      local id = sub(member, 9)
      local record = fresh[id] or call('HGET', RECORDS, id)
      line.next = line.next + 1
      if record and is_whole(record) then return id, member, record end
    end
  end
end

-- Whether there is room for one more job at this time, if need be because another gives way.
local function make_room(at)
  if not max_size or live < max_size then return true end
  local is_dead = bounds[2] == 'dead_letter_oldest'
  if not is_dead and bounds[2] ~= 'drop_oldest' or is_dead and dead >= dead_max then return false end
  local id, member, record = first_to_give_way()
  if not id then return false end
  local state = is_dead and '5' or '6'
  victims[#victims + 1] = {
    id = id, state = state, member = member, record = state .. at .. sub(record, 10, 18) .. ARGV[3] .. sub(record, 20),
  }
  ended[id] = tonumber(state)
  live = live - 1
  if is_dead then dead = dead + 1 end
  return true
end

local function holder_for(record)
  local key, now = key_of(record), micros_at(record, 45)
  local own = taken[key]
  if not own then return holder_of(key, now, ended) end
  local is_held = holds(byte(own.record, 58), ended[own.id] or byte(own.record) - 48)
  return is_held and not is_over(tonumber(sub(own.record, 59, 78)), now) and own.id or nil
end

local function take_in(i, id, record)
  letters[i] = 'I'
  fresh[id] = record
  inserted[#inserted + 1] = i
  live = live + 1
  if has_key(flags_of(record)) then taken[key_of(record)] = { id = id, record = record } end
  if byte(record) ~= READY_LETTER then return end
  ready_total = ready_total + 1
  if max_size then
    local members = line_of(level_of(record)).members
    members[#members + 1] = ARGV[HEAD + 3 * i - 2]
  end
end

for i, id in ipairs(ids) do
  local record = ARGV[HEAD + 3 * i - 1]
  local is_same = known[i] or fresh[id]
  local holder = not is_same and not moved[i] and has_key(flags_of(record)) and holder_for(record)
  if is_same then
    letters[i] = 'S'
  elseif moved[i] then
    letters[i] = 'M'
    answer[#answer + 1] = moved[i]
  elseif holder then
    letters[i] = 'D'
    answer[#answer + 1] = holder
  elseif not make_room(sub(record, 45, 52)) then
    letters[i] = 'F'
  else
    take_in(i, id, record)
  end
end

answer[1] = concat(letters)
if #inserted == 0 then return answer end

local records, payloads, order, ready, scheduled = {}, {}, {}, {}, {}
local seq = ready_total > 0 and tail(ready_total)
for at, i in ipairs(inserted) do
  local from, id = HEAD + 3 * i, ids[i]
  local member, record = ARGV[from - 2], ARGV[from - 1]
  records[2 * at - 1], records[2 * at] = id, record
  if ARGV[from] ~= '' then add_payload(payloads, id, ARGV[from]) end
  order[2 * at - 1], order[2 * at] = '0', member
  if byte(record) == READY_LETTER then
    ready[#ready + 1] = digits(place(level_of(record), seq))
    ready[#ready + 1] = member
    seq = seq + 1
  else
    scheduled[#scheduled + 1] = '0'
    scheduled[#scheduled + 1] = sub(record, 28, 35) .. member
  end
end
write('HSET', RECORDS, records)
keep_payloads(payloads)
write('ZADD', ORDER, order)
write('ZADD', READY, ready)
write('ZADD', SCHEDULED, scheduled)
for _, own in pairs(taken) do take_key(own.id, own.record) end
call('HINCRBY', META, 'enqueued', #inserted)

for _, victim in ipairs(victims) do
  local member = member_of(victim.state, victim.record, victim.id)
  leave_ready(victim.member)
  call('HSET', RECORDS, victim.id, victim.record)
  call('ZADD', LINES[victim.state], 0, member)
  if victim.state == '5' then add_death(member, ARGV[4]) end
  call('HINCRBY', META, victim.state == '5' and 'dead' or 'cancelled', 1)
end
if not bounds[4] then answer[#answer + 1] = 'new' end
return answer
