-- Removes ended jobs whose retention is over, and unique keys that outlasted their job until now.
-- ARGV[1] now
-- ARGV[2] how many jobs at most
-- ARGV[3] how many keys at most
-- then nothing more, if the jobs of this queue are left alone; or for done, cancelled, dead: the
--   first end time that is not over yet, how many may stay (empty: any number), and how long a
--   queue is empty before it is forgotten
-- Returns: how many done, cancelled and dead jobs were removed; whether there are more; how many
--   keys were removed; whether there are more; whether the queue is to be forgotten.

local now, room, keys_max = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local more = 0

local function remove(members, state)
  local ids, order = {}, {}
  for i, member in ipairs(members) do
    ids[i] = sub(member, 17)
    order[i] = sub(member, 9)
  end
  for i, record in ipairs(read(RECORDS, ids)) do
    if record and is_whole(record) and has_key(flags_of(record)) then leave_key(ids[i], record, state, now) end
  end
  write('HDEL', RECORDS, ids)
  write('HDEL', ENDS, ids)
  drop_payloads(ids)
  write('HDEL', HISTORIES, ids)
  write('ZREM', ORDER, order)
  return ids
end

-- A job that is being moved to another queue is not removed yet.
local function staying(members)
  if call('HLEN', MOVING) == 0 then return members end
  local stay = {}
  for _, member in ipairs(members) do
    if call('HEXISTS', MOVING, sub(member, 17)) == 0 then stay[#stay + 1] = member end
  end
  return stay
end

local function forget_deaths(ids)
  local groups = {}
  for i, death in ipairs(read(DEATHS, ids)) do
    if death then groups[#groups + 1] = death .. ids[i] end
  end
  write('ZREM', GROUPS, groups)
  write('HDEL', DEATHS, ids)
end

local function prune(line, state, bound, kept)
  if not bound then return 0 end
  local over = call('ZLEXCOUNT', line, '-', '(' .. bound)
  if kept ~= '' then over = math.max(over, call('ZCARD', line) - tonumber(kept)) end
  local taken = math.min(over, room)
  if over > taken then more = 1 end
  if taken == 0 then return 0 end
  local members = staying(call('ZRANGE', line, 0, taken - 1))
  local ids = remove(members, state)
  if state == 5 then forget_deaths(ids) end
  write('ZREM', line, members)
  room = room - #members
  return #members
end

local function forget_keys()
  local over = call('ZRANGEBYSCORE', LAPSES, '-inf', now, 'LIMIT', 0, keys_max + 1)
  local taken = math.min(#over, keys_max)
  for i = 1, taken do
    call('HDEL', UNIQUE, over[i])
    call('ZREM', LAPSES, over[i])
  end
  return taken, #over > taken and 1 or 0
end

local done = prune(DONE, 4, ARGV[4], ARGV[5])
local cancelled = prune(CANCELLED, 6, ARGV[6], ARGV[7])
local dead = prune(DEAD, 5, ARGV[8], ARGV[9])
local keys, more_keys = forget_keys()
local unused = ARGV[10] and is_unused(now, tonumber(ARGV[10])) and 1 or 0
return { done, cancelled, dead, more, keys, more_keys, unused }
