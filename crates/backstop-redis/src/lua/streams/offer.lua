-- Stores records for their keys.
-- ARGV[1] now
-- ARGV[2] a lease that ends later than this was given before the clock was set back
-- ARGV[3] how many records a key may hold
-- then for each record: key, position, record without its arrival, payload
-- Returns: one letter per record (H held, D duplicate, F full).

local at, max, HEAD = ARGV[1], tonumber(ARGV[3]), 3
local now, far = micros(at), micros(ARGV[2])
local count, names, fields = (#ARGV - HEAD) / 4, {}, {}
for i = 1, count do
  local from = HEAD + 4 * i - 3
  names[i], fields[i] = ARGV[from], ARGV[from] .. '\0' .. ARGV[from + 1]
end
open(names)
local known, letters, fresh, growing = read(RECORDS, fields), {}, {}, {}
local records, payloads, places, ages = {}, {}, {}, {}

local function earlier(time, other)
  if time == NEVER or micros(other) < micros(time) then return other end
  return time
end

-- The state of a key while the script adds records to it.
local function growth(key)
  if growing[key] then return growing[key] end
  local head = before[key] or EMPTY
  local grown = { head = head, is_whole = is_whole(head), added = 0 }
  if grown.is_whole then
    grown.arrived, grown.count = struct.unpack('>I8', head, 38), count_of(head)
    grown.from = is_held(head, now, far) and sub(head, 13, 20) or at
  end
  growing[key] = grown
  return grown
end

local function hold(grown, i)
  grown.added = grown.added + 1
  local field, record = fields[i], ARGV[HEAD + 4 * i - 1]
  local two = 2 * (#places / 2 + 1)
  record = sub(record, 1, 16) .. struct.pack('>I8', grown.arrived + grown.added) .. sub(record, 25)
  records[two - 1], records[two] = field, record
  payloads[two - 1], payloads[two] = field, ARGV[HEAD + 4 * i]
  places[two - 1], places[two] = '0', field
  ages[two - 1], ages[two] = '0', names[i] .. '\0' .. at .. sub(field, -8)
  fresh[field] = true
end

for i = 1, count do
  local grown = growth(names[i])
  if known[i] or fresh[fields[i]] then
    letters[i] = 'D'
  elseif not grown.is_whole or grown.count + grown.added >= max then
    -- A key with a damaged head accepts no record: its counts and its watermark are unknown.
    letters[i] = 'F'
  else
    letters[i] = 'H'
    hold(grown, i)
  end
end

for key, grown in pairs(growing) do
  if grown.added > 0 then
    local head = grown.head
    local due, oldest = earlier(sub(head, 22, 29), grown.from), earlier(sub(head, 30, 37), at)
    local sums = struct.pack('>I8I4', grown.arrived + grown.added, grown.count + grown.added)
    put(key, sub(head, 1, 21) .. due .. oldest .. sums .. sub(head, 50))
  end
end
write('HSET', RECORDS, records)
write('HSET', PAYLOADS, payloads)
write('ZADD', PLACES, places)
write('ZADD', AGES, ages)
commit()
return concat(letters)
