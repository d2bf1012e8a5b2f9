-- Stands before every script: the keys of one queue, and what several scripts do with them.
--
-- KEYS[1]  records    hash   id -> record
-- KEYS[2]  payloads   hash   id -> the bytes a handler gets, and the job's own retry policy
-- KEYS[3]  histories  hash   id -> failures, of jobs that have some
-- KEYS[4]  order      zset   arrival id, all jobs
-- KEYS[5]  ready      zset   arrival id, by place: level, then order of becoming ready
-- KEYS[6]  scheduled  zset   run_at arrival id
-- KEYS[7]  retrying   zset   run_at arrival id
-- KEYS[8]  done       zset   finished_at arrival id
-- KEYS[9]  dead       zset   finished_at arrival id
-- KEYS[10] cancelled  zset   finished_at arrival id
-- KEYS[11] leases     hash   id -> lease, of jobs that run
-- KEYS[12] claims     hash   number -> the queues the claim reaches into, newline, worker
-- KEYS[13] terms      zset   number, by the end of the claim
-- KEYS[14] held       hash   number -> ids given out under it
-- KEYS[15] left       hash   number -> how many of those are not settled
-- KEYS[16] unique     hash   unique key -> id, states, until
-- KEYS[17] lapses     zset   unique keys that outlast their job, by the end of their period
-- KEYS[18] meta       hash   gate, seq, totals
--
-- A time in a member or a record is eight bytes that sort as it does; scripts move it and never look inside. Lua has no
-- whole numbers beyond 2^53, so lease numbers too are eight bytes.
--
-- A record, by byte:
--   1 state  2-9 arrival  10-17 run_at  18-25 finished_at or NULs  26-33 inserted_at  34 level
--   35 flags (1 history, 2 unique key)  36-39 attempts  40-43 lost leases  44-47 requeues  48 reason
--   49-56 number and 57 tag of the settlement accepted last  58 states and 59-78 end of its hold on the key
--   79-80 length of kind  81- kind, then unique key
-- A lease: 1-8 number  9 begun  10 flags  11-18 arrival  19- place, then of a seized job: | number begun worker

local RECORDS, PAYLOADS, HISTORIES, ORDER, READY = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local SCHEDULED, RETRYING, DONE, DEAD, CANCELLED = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local LEASES, CLAIMS, TERMS, HELD, LEFT = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local UNIQUE, LAPSES, META = KEYS[16], KEYS[17], KEYS[18]
local LINES = { ['0'] = SCHEDULED, ['1'] = READY, ['3'] = RETRYING, ['4'] = DONE, ['5'] = DEAD, ['6'] = CANCELLED }
local NEVER = string.rep('\0', 8)

local call, sub, byte, concat = redis.call, string.sub, string.byte, table.concat

-- A function takes some thousands of values at once and no more. Even, because many commands take pairs.
local SLICE = 4000

local function write(command, key, values)
  for first = 1, #values, SLICE do
    call(command, key, unpack(values, first, math.min(first + SLICE - 1, #values)))
  end
end

local function read(key, fields)
  if #fields == 0 then return {} end
  if #fields <= SLICE then return call('HMGET', key, unpack(fields)) end
  local found = {}
  for first = 1, #fields, SLICE do
    local slice = call('HMGET', key, unpack(fields, first, math.min(first + SLICE - 1, #fields)))
    for i = 1, #slice do found[first + i - 1] = slice[i] end
  end
  return found
end

-- Places: a level is 2^51 wide, and its upper half is given out in order. The lower half is for jobs whose place was
-- lost: see mend_jobs.lua.
local function place(level, seq)
  return level * 2251799813685248 + 1125899906842624 + seq
end

-- The first of so many places at the tail, which are then taken.
local function tail(count)
  return call('HINCRBY', META, 'seq', count) - count
end

local function level_of(record) return byte(record, 34) - 48 end
local function has_history(flags) return flags == '1' or flags == '3' end
local function has_key(flags) return flags == '2' or flags == '3' end

local function key_of(record)
  return sub(record, 81 + byte(record, 79) * 256 + byte(record, 80))
end

-- The member of a job in the line of its state.
local function member_of(state, record, id)
  local arrival = sub(record, 2, 9)
  if state == '1' then return arrival .. id end
  if state == '0' or state == '3' then return sub(record, 10, 17) .. arrival .. id end
  return sub(record, 18, 25) .. arrival .. id
end

local function is_over(till, now)
  return till ~= nil and now >= till
end

local function holds(states, state)
  return bit.band(states, bit.lshift(1, state)) ~= 0
end

-- Who holds a unique key now.
local function holder_of(key, now)
  local holding = call('HGET', UNIQUE, key)
  if not holding or is_over(tonumber(sub(holding, 18)), now) then return nil end
  local id = sub(holding, 1, 16)
  local record = call('HGET', RECORDS, id)
  -- Without a record the job is gone and left its key behind.
  if record then
    local state = call('HEXISTS', LEASES, id) == 1 and 2 or byte(record) - 48
    if not holds(byte(holding, 17), state) then return nil end
  end
  return id
end

local function take_key(id, record)
  local key = key_of(record)
  call('HSET', UNIQUE, key, id .. sub(record, 58, 78))
  call('ZREM', LAPSES, key)
end

-- Frees the key of a job that is being removed, unless the state it ended in still holds it.
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

local function close_claim(number)
  call('HDEL', CLAIMS, number)
  call('ZREM', TERMS, number)
  call('HDEL', HELD, number)
  call('HDEL', LEFT, number)
end

-- gone: number -> how many of its jobs it no longer holds.
local function leave_claims(gone)
  for number, count in pairs(gone) do
    if call('HINCRBY', LEFT, number, -count) <= 0 then close_claim(number) end
  end
end

local function open_claim(number, holder, till, ids)
  call('HSET', CLAIMS, number, holder)
  call('ZADD', TERMS, till, number)
  call('HSET', HELD, number, concat(ids))
  call('HSET', LEFT, number, #ids)
end

local function worker_of(holder) return holder and string.match(holder, '^[^\n]*\n(.*)$') end
local function place_of(lease) return string.match(lease, '^%d+', 19) end

-- What is left of a claim, in the order of its places.
local function held_under(number)
  local packed, all = call('HGET', HELD, number) or '', {}
  for first = 1, #packed, 16 do all[#all + 1] = sub(packed, first, first + 15) end
  local leases, held = read(LEASES, all), {}
  for i, id in ipairs(all) do
    local lease = leases[i]
    if lease and sub(lease, 1, 8) == number then
      held[#held + 1] = { id = id, lease = lease, place = tonumber(place_of(lease)) }
    end
  end
  table.sort(held, function(a, b) return a.place < b.place end)
  return held
end

-- What a worker gets of these jobs: ids, records, payloads, and of those that have some: which, history.
local function handed_out(ids, records)
  local histories = {}
  for i, record in ipairs(records) do
    if record and has_history(sub(record, 35, 35)) then
      histories[#histories + 1] = i
      histories[#histories + 1] = call('HGET', HISTORIES, ids[i])
    end
  end
  return { concat(ids), records, read(PAYLOADS, ids), histories }
end

local function handed_out_again(held)
  local ids, leases = {}, {}
  for i, run in ipairs(held) do ids[i], leases[i] = run.id, run.lease end
  local answer = handed_out(ids, read(RECORDS, ids))
  answer[5] = leases
  return answer
end
