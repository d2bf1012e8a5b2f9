-- Removes ended jobs whose time is over, and unique keys that outlasted their job until now.
-- ARGV[1] now
-- ARGV[2] at most so many jobs
-- ARGV[3] at most so many keys
-- then nothing more, if the jobs of this queue are left alone; or for done, cancelled, dead:
--   the first time that is not over yet, how many may stay (empty: any number)
-- Answers: done, cancelled, dead jobs removed; whether there are more; keys removed; whether there are more.

local now, room, keys_max = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local more = 0

local function remove(members, state)
  local ids, order = {}, {}
  for i, member in ipairs(members) do
    ids[i] = sub(member, 17)
    order[i] = sub(member, 9)
  end
  for i, record in ipairs(read(RECORDS, ids)) do
    if record and has_key(flags_of(record)) then leave_key(ids[i], record, state, now) end
  end
  write('HDEL', RECORDS, ids)
  write('HDEL', PAYLOADS, ids)
  write('HDEL', HISTORIES, ids)
  write('ZREM', ORDER, order)
end

local function prune(line, state, bound, kept)
  if not bound then return 0 end
  local over = call('ZLEXCOUNT', line, '-', '(' .. bound)
  if kept ~= '' then over = math.max(over, call('ZCARD', line) - tonumber(kept)) end
  local taken = math.min(over, room)
  if over > taken then more = 1 end
  if taken == 0 then return 0 end
  remove(call('ZRANGE', line, 0, taken - 1), state)
  call('ZREMRANGEBYRANK', line, 0, taken - 1)
  room = room - taken
  return taken
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
return { done, cancelled, dead, more, keys, more_keys }
