-- Prefix of every script of a stream: the Redis keys of one shard, what they hold, and how a script
-- changes a key of the stream.
--
-- KEYS[1]  heads     hash   key -> head
-- KEYS[2]  names     zset   key
-- KEYS[3]  due       zset   due key, of keys that are due now or later
-- KEYS[4]  records   hash   key NUL position -> record
-- KEYS[5]  payloads  hash   key NUL position -> payload
-- KEYS[6]  places    zset   key NUL position
-- KEYS[7]  ages      zset   key NUL at position
-- KEYS[8]  holding   zset   oldest key, of keys that hold records
-- KEYS[9]  taken     zset   number key, of keys that are leased because they were due
-- KEYS[10] counts    hash   index -> number
--
-- A key of a stream contains no NUL. Times, positions and lease numbers are eight bytes, as in
-- records of jobs.
--
-- A head, by byte:
--   1-8 number of its current or last lease  9-12 the last turn of that lease
--   13-20 end of the lease, NULs if it was released
--   21 D if it is leased because it was due, otherwise K  22-29 due or NULs
--   30-37 at of the oldest held record or NULs  38-45 arrived  46-49 how many records it holds
--   50 1 if there is a watermark, otherwise 0  51-58 watermark  59-60 length of worker
--   61- worker, then standing (the state of the key)
-- A record, by byte: 1-8 step  9-16 at  17-24 arrival  25- 0, or 1 and the tenant

local HEADS, NAMES, DUE, RECORDS, PAYLOADS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local PLACES, AGES, HOLDING, TAKEN, COUNTS = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]

local NEVER, NONE = string.rep('\0', 8), string.rep('\0', 4)
-- Bytes 21 to 37 of most heads: such a key is in no index.
local UNINDEXED = 'K' .. NEVER .. NEVER
local EMPTY = NEVER .. NONE .. NEVER .. UNINDEXED .. NEVER .. NONE .. '0' .. NEVER .. '\0\0'

local function micros(time)
  local high, low = struct.unpack('>I4I4', time)
  return (high - 2147483648) * 4294967296 + low
end

local function worker_end(head) return 60 + byte(head, 59) * 256 + byte(head, 60) end

-- Whether these bytes are a valid head, as far as scripts read it.
local function is_whole(head) return #head >= 60 and #head >= worker_end(head) end

-- Whether this is the head of a key that is leased under this number.
local function is_under(head, number)
  return sub(head, 1, 8) == number and sub(head, 13, 20) ~= NEVER and is_whole(head)
end

-- Whether a worker has the key leased. A lease that ends later than far was given before the clock
-- was set back.
local function is_held(head, now, far)
  local till = sub(head, 13, 20)
  if till == NEVER then return false end
  till = micros(till)
  return till >= now and till <= far
end

local function count_of(head) return struct.unpack('>I4', head, 46) end

local function or_nothing(bytes) return bytes ~= NEVER and bytes or nil end
local function due_of(head) return or_nothing(sub(head, 22, 29)) end
local function oldest_of(head) return or_nothing(sub(head, 30, 37)) end
local function taken_under(head) return sub(head, 21, 21) == 'D' and sub(head, 1, 8) or nil end

-- The range of a key's records in places and ages.
local function range_of(key) return '[' .. key .. '\0', '(' .. key .. '\1' end

-- Heads as the script read them and as it will write them; false if there is none. A head that a
-- script changes twice is written once.
local before, after, touched = {}, {}, {}

local function open(keys)
  local unknown = {}
  for _, key in ipairs(keys) do
    if before[key] == nil then
      before[key] = false
      unknown[#unknown + 1] = key
    end
  end
  for i, head in ipairs(read(HEADS, unknown)) do
    before[unknown[i]], after[unknown[i]] = head, head
  end
end

local function put(key, head)
  if after[key] == before[key] then touched[#touched + 1] = key end
  after[key] = head
end

local joining = { [DUE] = {}, [HOLDING] = {}, [TAKEN] = {} }
local leaving = { [DUE] = {}, [HOLDING] = {}, [TAKEN] = {} }

local function move(index, key, from, to)
  if from == to then return end
  if from then leaving[index][#leaving[index] + 1] = from .. key end
  if to then
    local members = joining[index]
    members[#members + 1] = '0'
    members[#members + 1] = to .. key
  end
end

local function reindex(key, from, to)
  from, to = from or EMPTY, to or EMPTY
  if sub(from, 21, 37) == UNINDEXED and sub(to, 21, 37) == UNINDEXED then return end
  if not is_whole(from) then from = EMPTY end
  move(DUE, key, due_of(from), due_of(to))
  move(HOLDING, key, oldest_of(from), oldest_of(to))
  move(TAKEN, key, taken_under(from), taken_under(to))
end

local function commit()
  local changed, gone, new = {}, {}, {}
  for _, key in ipairs(touched) do
    local from, to = before[key], after[key]
    if to then
      changed[#changed + 1] = key
      changed[#changed + 1] = to
    else
      gone[#gone + 1] = key
    end
    if not from then
      new[#new + 1] = '0'
      new[#new + 1] = key
    end
    reindex(key, from, to)
  end
  write('HSET', HEADS, changed)
  write('ZADD', NAMES, new)
  write('HDEL', HEADS, gone)
  write('ZREM', NAMES, gone)
  for index, members in pairs(leaving) do write('ZREM', index, members) end
  for index, members in pairs(joining) do write('ZADD', index, members) end
end
