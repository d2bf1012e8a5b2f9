-- Ends runs.
-- ARGV[1] now
-- ARGV[2] now, as records have it
-- then for each run: id number, and the change:
--   1 tag  2 state  3 place (T tail, F former)  4 attempts and 5 lost leases to add  6 reason
--   7 gone (0, 1)  8 history (0 as it is, 1 this, 2 none)  9-16 run_at or NULs  17- history
-- Answers: one letter a run (A applied, S stale).

local now, finished_at = tonumber(ARGV[1]), ARGV[2]
local count, ids = (#ARGV - 2) / 2, {}
for i = 1, count do ids[i] = sub(ARGV[2 * i + 1], 1, 16) end
local leases = read(LEASES, ids)

local function is_current(i)
  return leases[i] and sub(leases[i], 1, 8) == sub(ARGV[2 * i + 1], 17)
end

-- A job that is gone at once, and has neither history nor key, ends without its record being read.
local function is_plain(i)
  return is_current(i) and sub(leases[i], 10, 10) == '0' and sub(ARGV[2 * i + 2], 7, 7) == '1'
end

local records = {}
for i = 1, count do
  if not is_plain(i) then
    records = read(RECORDS, ids)
    break
  end
end

-- latest: id -> its record after this batch changed it; false once it is gone.
local latest, letters, freed, left_claims = {}, {}, {}, {}
local gone, gone_order, gone_histories, changed, histories = {}, {}, {}, {}, {}
local lines, totals = { ['0'] = {}, ['1'] = {}, ['3'] = {}, ['4'] = {}, ['5'] = {}, ['6'] = {} }, {}

local function remove(id, lease, record)
  local flags = sub(lease, 10, 10)
  gone[#gone + 1] = id
  gone_order[#gone_order + 1] = sub(lease, 11, 18) .. id
  if has_history(flags) then gone_histories[#gone_histories + 1] = id end
  if has_key(flags) and record then leave_key(id, record, 4, now) end
  latest[id] = false
end

local function history_flag(id, record, change)
  local asked, flag = sub(change, 8, 8), byte(record, 35) - 48
  if asked == '0' then return flag end
  if asked == '1' then
    histories[#histories + 1] = id
    histories[#histories + 1] = sub(change, 17)
    return flag % 2 == 0 and flag + 1 or flag
  end
  gone_histories[#gone_histories + 1] = id
  return flag % 2 == 1 and flag - 1 or flag
end

local function ended(id, number, record, change)
  local state, run_at = sub(change, 2, 2), sub(change, 9, 16)
  local attempts, lost = struct.unpack('>I4I4', record, 36)
  return concat({
    state,
    sub(record, 2, 9),
    run_at == NEVER and sub(record, 10, 17) or run_at,
    (state == '4' or state == '5' or state == '6') and finished_at or NEVER,
    sub(record, 26, 34),
    history_flag(id, record, change),
    struct.pack('>I4I4', attempts + byte(change, 4) - 48, lost + byte(change, 5) - 48),
    sub(record, 44, 47),
    sub(change, 6, 6),
    number,
    sub(change, 1, 1),
    sub(record, 58),
  })
end

local function put(id, lease, record, change)
  local state = sub(record, 1, 1)
  local line, score = lines[state], 0
  if state == '1' then
    score = sub(change, 3, 3) == 'F' and place_of(lease) or place(level_of(record), tail(1))
  end
  line[#line + 1] = score
  line[#line + 1] = member_of(state, record, id)
end

for i = 1, count do
  local id, number, change = ids[i], sub(ARGV[2 * i + 1], 17), ARGV[2 * i + 2]
  local record = latest[id]
  if record == nil then record = records[i] end
  if latest[id] == nil and is_current(i) and (record or is_plain(i)) then
    letters[i] = 'A'
    freed[#freed + 1] = id
    left_claims[number] = (left_claims[number] or 0) + 1
    local state = sub(change, 2, 2)
    totals[state] = (totals[state] or 0) + 1
    if sub(change, 7, 7) == '1' then
      remove(id, leases[i], record)
    else
      latest[id] = ended(id, number, record, change)
      changed[#changed + 1] = id
      changed[#changed + 1] = latest[id]
      put(id, leases[i], latest[id], change)
    end
  else
    local repeated = record and sub(record, 49, 57) == number .. sub(change, 1, 1)
    letters[i] = repeated and 'A' or 'S'
  end
end

write('HSET', RECORDS, changed)
write('HDEL', RECORDS, gone)
write('HDEL', PAYLOADS, gone)
write('HDEL', HISTORIES, gone_histories)
write('HSET', HISTORIES, histories)
write('ZREM', ORDER, gone_order)
for state, line in pairs(lines) do write('ZADD', LINES[state], line) end
write('HDEL', LEASES, freed)
leave_claims(left_claims)
for state, name in pairs({ ['4'] = 'done', ['5'] = 'dead', ['6'] = 'cancelled' }) do
  if totals[state] then call('HINCRBY', META, name, totals[state]) end
end
return concat(letters)
