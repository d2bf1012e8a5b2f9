-- Stores dead letters.
-- ARGV[1] how many of them the queue may hold, unless its own bound is set
-- then for each: arrival id, record, payload or nothing if the record contains it, history or
--   nothing, fingerprint
-- Returns: one letter each (I inserted, S same id, F full, M moved); then for each M the queue it
--   was moved to; then 'new' if the queue was not there before.

local count, ids, letters, answer = (#ARGV - 1) / 5, {}, {}, { '' }
for i = 1, count do ids[i] = sub(ARGV[5 * i - 3], 9) end
local known, moved = read(RECORDS, ids), read(MOVED, ids)
local room = (tonumber(call('HGET', META, 'dead_max')) or tonumber(ARGV[1])) - call('ZCARD', DEAD)
local records, payloads, histories, order, dead, deaths, groups, fresh = {}, {}, {}, {}, {}, {}, {}, {}

local function add(list, first, second)
  list[#list + 1] = first
  list[#list + 1] = second
end

local function take_in(id, at)
  local arrival_id, record, fingerprint = ARGV[at], ARGV[at + 1], ARGV[at + 4]
  local member = member_of('5', record, id)
  add(records, id, record)
  if ARGV[at + 2] ~= '' then add(payloads, id, ARGV[at + 2]) end
  if ARGV[at + 3] ~= '' then add(histories, id, ARGV[at + 3]) end
  add(order, '0', arrival_id)
  add(dead, '0', member)
  add(deaths, id, fingerprint .. sub(member, 1, 16))
  add(groups, '0', fingerprint .. member)
  fresh[id] = true
  room = room - 1
end

for i, id in ipairs(ids) do
  if known[i] or fresh[id] then
    letters[i] = 'S'
  elseif moved[i] then
    letters[i] = 'M'
    answer[#answer + 1] = moved[i]
  elseif room <= 0 then
    letters[i] = 'F'
  else
    letters[i] = 'I'
    take_in(id, 5 * i - 3)
  end
end

answer[1] = concat(letters)
if #records == 0 then return answer end
write('HSET', RECORDS, records)
keep_payloads(payloads)
write('HSET', HISTORIES, histories)
write('ZADD', ORDER, order)
write('ZADD', DEAD, dead)
write('HSET', DEATHS, deaths)
write('ZADD', GROUPS, groups)
if call('HINCRBY', META, 'enqueued', #records / 2) == #records / 2 then answer[#answer + 1] = 'new' end
call('HINCRBY', META, 'dead', #records / 2)
return answer
