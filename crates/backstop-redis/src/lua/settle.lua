-- Settles runs.
-- ARGV[1] now
-- ARGV[2] now, in the format of records
-- ARGV[3] how many dead letters the queue may hold, unless its own bound is set
-- then for runs that share a change and a claim, no id twice: the change, the number of the claim,
-- and the ids in one piece; the change:
--   1 tag  2 state  3 place (T end of the line, F former place)
--   4 attempts and 5 lost leases to add  6 reason  7 remove the job (0, 1)
--   8 history (0 as it is, 1 this, 2 none)  9 whether attempts are counted anew (0, 1)
--   10-17 run_at or NULs  18-25 fingerprint or NULs  26- history
-- Returns: one letter per run (A applied, S stale, F full).

-- A Redis without free memory refuses a command that may need more, but only as the first write of
-- a script. So this harmless write lets claimed jobs still be kept and ended.
call('HDEL', LEASES, '')

local function parse(change)
  local state, run_at = sub(change, 2, 2), sub(change, 10, 17)
  local parsed = {
    from = change, tag = sub(change, 1, 1), state = state, is_former = sub(change, 3, 3) == 'F',
    attempts = byte(change, 4) - 48, lost = byte(change, 5) - 48, reason = sub(change, 6, 6),
    is_gone = sub(change, 7, 7) == '1', history = sub(change, 8, 8), is_anew = sub(change, 9, 9) == '1',
    run_at = run_at ~= NEVER and run_at,
    finished_at = (state == '4' or state == '5' or state == '6') and ARGV[2] or NEVER,
  }
  parsed.start, parsed.mark = state .. parsed.finished_at, parsed.tag .. parsed.reason
  -- A change that only adds an attempt leaves all bytes behind the attempts as they are.
  parsed.is_simple = parsed.lost == 0 and parsed.history == '0' and not parsed.run_at and not parsed.is_anew
  return parsed
end

local now, count, ids, numbers, changes, parsed = tonumber(ARGV[1]), 0, {}, {}, {}, {}
-- Whether there are several changes, or several parts of one claim: then an id may be there twice.
local claims, is_mixed = {}, false
for at = 4, #ARGV, 3 do
  local change, number, packed = parsed[ARGV[at]] or parse(ARGV[at]), ARGV[at + 1], ARGV[at + 2]
  parsed[ARGV[at]] = change
  if claims[number] or at > 4 and change ~= changes[1] then is_mixed = true end
  claims[number] = true
  for first = 1, #packed, 16 do
    count = count + 1
    ids[count], numbers[count], changes[count] = sub(packed, first, first + 15), number, change
  end
end
local leases = read(LEASES, ids)

-- Adds to a number of four bytes.
local sums = {}
local function plus(bytes, more)
  if more == 0 then return bytes end
  if not sums[bytes] then sums[bytes] = struct.pack('>I4', struct.unpack('>I4', bytes) + 1) end
  return sums[bytes]
end

local current, all_plain, all_first = {}, true, not is_mixed
for i = 1, count do
  local lease = leases[i]
  current[i] = lease and sub(lease, 1, 8) == numbers[i]
  local flags = current[i] and byte(lease, 10) - 48
  if not current[i] or flags % 4 ~= 0 or not changes[i].is_gone then all_plain = false end
  if not current[i] or not is_first(flags) then all_first = false end
end

-- The common case: all runs are first attempts that are done, and the jobs stay listed. This does
-- the same as below, without the questions that have only one answer here. The new beginning of the
-- record is the same for all jobs of a claim: it is written into `ends`, and the records are not
-- even read.
local function all_done(change)
  local ends, line, n = {}, {}, 0
  local heads, left_claims = {}, {}
  for i = 1, count do
    local id, number = ids[i], numbers[i]
    local head = heads[number]
    if not head then
      head = change.start .. number .. change.mark .. plus('\0\0\0\0', 1)
      heads[number] = head
    end
    ends[n + 1], ends[n + 2] = id, head
    line[n + 1], line[n + 2] = '0', change.finished_at .. sub(leases[i], 11, 18) .. id
    left_claims[number] = (left_claims[number] or 0) + 1
    n = n + 2
  end
  write('HSET', ENDS, ends)
  write('ZADD', DONE, line)
  write('HDEL', LEASES, ids)
  leave_claims(left_claims)
  call('HINCRBY', META, 'done', count)
  return string.rep('A', count)
end
local first = changes[1]
if all_first and first.state == '4' and first.attempts == 1 and first.is_simple and not first.is_gone then return all_done(first) end

-- The same if the jobs are removed at once, and have neither history nor unique key.
local function all_gone()
  local order, payloads, left_claims = {}, {}, {}
  for i = 1, count do
    local id, number, lease = ids[i], numbers[i], leases[i]
    order[i] = sub(lease, 11, 18) .. id
    if not has_payload(byte(lease, 10) - 48) then payloads[#payloads + 1] = id end
    left_claims[number] = (left_claims[number] or 0) + 1
  end
  write('HDEL', RECORDS, ids)
  drop_payloads(payloads)
  write('ZREM', ORDER, order)
  write('HDEL', LEASES, ids)
  leave_claims(left_claims)
  call('HINCRBY', META, 'done', count)
  return string.rep('A', count)
end
if all_plain and not is_mixed then return all_gone() end

-- If all jobs are removed at once and have neither history nor unique key, their records are not
-- read.
local records = {}
if not all_plain then
  local found, ends = read(RECORDS, ids), read(ENDS, ids)
  for i = 1, count do records[i] = with_end(found[i], ends[i]) end
end

-- latest: id -> its record after this batch changed it; false once it is removed.
local latest, letters, freed, left_claims = {}, {}, {}, {}
local gone, gone_order, gone_payloads, gone_histories, changed, histories = {}, {}, {}, {}, {}, {}
local deaths, groups = {}, {}
local lines, totals = { ['0'] = {}, ['1'] = {}, ['3'] = {}, ['4'] = {}, ['5'] = {}, ['6'] = {} }, {}

local function remove(id, lease, record)
  local flags = byte(lease, 10) - 48
  gone[#gone + 1] = id
  gone_order[#gone_order + 1] = sub(lease, 11, 18) .. id
  if not has_payload(flags) then gone_payloads[#gone_payloads + 1] = id end
  if has_history(flags) then gone_histories[#gone_histories + 1] = id end
  if has_key(flags) then leave_key(id, record, 4, now) end
  latest[id] = false
end

local function with_history(id, record, change)
  local flags = flags_of(record)
  if change.history == '0' then return flags end
  if change.history == '1' then
    histories[#histories + 1] = id
    histories[#histories + 1] = sub(change.from, 26)
    return has_history(flags) and flags or flags + 1
  end
  gone_histories[#gone_histories + 1] = id
  return has_history(flags) and flags - 1 or flags
end

local function ended(id, number, record, change)
  local attempts = plus(change.is_anew and '\0\0\0\0' or sub(record, 20, 23), change.attempts)
  if change.is_simple then
    return change.start .. number .. change.mark .. attempts .. sub(record, 24)
  end
  local lost, run_at = plus(sub(record, 24, 27), change.lost), change.run_at or sub(record, 28, 35)
  local head = change.start .. number .. change.mark .. attempts .. lost .. run_at
  return head .. with_history(id, record, change) .. sub(record, 37)
end

local function put(id, lease, record, change)
  local state = change.state
  local line, score, member = lines[state], '0', sub(lease, 11, 18) .. id
  if state == '1' then
    score = change.is_former and place_of(lease) or digits(place(level_of(record), tail(1)))
  elseif state == '0' or state == '3' then
    member = change.run_at .. member
  else
    member = change.finished_at .. member
  end
  if state == '5' then
    local fingerprint = sub(change.from, 18, 25)
    deaths[#deaths + 1] = id
    deaths[#deaths + 1] = fingerprint .. sub(member, 1, 16)
    groups[#groups + 1] = '0'
    groups[#groups + 1] = fingerprint .. member
  end
  line[#line + 1] = score
  line[#line + 1] = member
end

-- How many more dead letters the queue may hold; read with the first death.
local graves
local function is_full(change)
  if change.state ~= '5' then return false end
  if not graves then
    graves = (tonumber(call('HGET', META, 'dead_max')) or tonumber(ARGV[3])) - call('ZCARD', DEAD)
  end
  graves = graves - 1
  return graves < 0
end

for i = 1, count do
  local id, number, change = ids[i], numbers[i], changes[i]
  local record = latest[id]
  if record == nil then record = records[i] end
  -- A job with a damaged record cannot be settled: an operator has to delete it.
  if record and #record < 80 then record = false end
  local is_held = current[i] and latest[id] == nil and (record or all_plain)
  if is_held and is_full(change) then
    letters[i] = 'F'
  elseif is_held then
    letters[i] = 'A'
    freed[#freed + 1] = id
    left_claims[number] = (left_claims[number] or 0) + 1
    totals[change.state] = (totals[change.state] or 0) + 1
    if change.is_gone then
      remove(id, leases[i], record)
    else
      record = ended(id, number, record, change)
      latest[id] = record
      changed[#changed + 1] = id
      changed[#changed + 1] = record
      put(id, leases[i], record, change)
    end
  else
    letters[i] = record and sub(record, 10, 18) == number .. change.tag and 'A' or 'S'
  end
end

write('HSET', RECORDS, changed)
write('HDEL', RECORDS, gone)
drop_payloads(gone_payloads)
write('HDEL', HISTORIES, gone_histories)
write('HSET', HISTORIES, histories)
write('ZREM', ORDER, gone_order)
write('HSET', DEATHS, deaths)
write('ZADD', GROUPS, groups)
for state, line in pairs(lines) do write('ZADD', LINES[state], line) end
write('HDEL', LEASES, freed)
leave_claims(left_claims)
for state, name in pairs({ ['4'] = 'done', ['5'] = 'dead', ['6'] = 'cancelled' }) do
  if totals[state] then call('HINCRBY', META, name, totals[state]) end
end
return concat(letters)
