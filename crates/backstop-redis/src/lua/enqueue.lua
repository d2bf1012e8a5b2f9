-- Takes jobs in. One of them is known by its id, or its unique key is held, or it goes in.
-- ARGV[1] now
-- then for each job: arrival id, record, payload
-- Answers: one letter a job (I inserted, S same, D duplicate); then the holder for each D.

local now, READY_LETTER = tonumber(ARGV[1]), byte('1')
local ids = {}
for at = 2, #ARGV, 3 do ids[#ids + 1] = sub(ARGV[at], 9) end
local known, letters, answer = read(RECORDS, ids), {}, { '' }
local fresh, inserted, ready_count = {}, {}, 0

for i, id in ipairs(ids) do
  local record = ARGV[3 * i]
  local unique = has_key(flags_of(record))
  local holder = unique and not known[i] and not fresh[id] and holder_of(key_of(record), now)
  if known[i] or fresh[id] then
    letters[i] = 'S'
  elseif holder then
    letters[i] = 'D'
    answer[#answer + 1] = holder
  else
    letters[i] = 'I'
    fresh[id] = true
    inserted[#inserted + 1] = i
    if byte(record) == READY_LETTER then ready_count = ready_count + 1 end
    if unique then
      -- At once: the next job of this batch may ask for the same key.
      call('HSET', RECORDS, id, record)
      take_key(id, record)
    end
  end
end

answer[1] = concat(letters)
if #inserted == 0 then return answer end

local records, payloads, order, ready, scheduled = {}, {}, {}, {}, {}
local seq = ready_count > 0 and tail(ready_count)
for at, i in ipairs(inserted) do
  local member, record, id = ARGV[3 * i - 1], ARGV[3 * i], ids[i]
  records[2 * at - 1], records[2 * at] = id, record
  payloads[2 * at - 1], payloads[2 * at] = id, ARGV[3 * i + 1]
  order[2 * at - 1], order[2 * at] = 0, member
  if byte(record) == READY_LETTER then
    ready[#ready + 1] = place(level_of(record), seq)
    ready[#ready + 1] = member
    seq = seq + 1
  else
    scheduled[#scheduled + 1] = 0
    scheduled[#scheduled + 1] = sub(record, 28, 35) .. member
  end
end
write('HSET', RECORDS, records)
write('HSET', PAYLOADS, payloads)
write('ZADD', ORDER, order)
write('ZADD', READY, ready)
write('ZADD', SCHEDULED, scheduled)
call('HINCRBY', META, 'enqueued', #inserted)
return answer
