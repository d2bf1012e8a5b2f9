-- Adds and removes held records of a key.

local function age_of(key, field, record) return key .. '\0' .. sub(record, 9, 16) .. sub(field, -8) end

-- The head with its held records counted anew.
local function recounted(key, head)
  local first, last = range_of(key)
  local age = call('ZRANGEBYLEX', AGES, first, last, 'LIMIT', 0, 1)[1]
  local count = call('ZLEXCOUNT', PLACES, first, last)
  local oldest = age and sub(age, -16, -9) or NEVER
  return sub(head, 1, 29) .. oldest .. sub(head, 38, 45) .. struct.pack('>I4', count) .. sub(head, 50)
end

-- positions: eight bytes each.
local function drop_records(key, positions)
  local fields, gone, ages = {}, {}, {}
  for at = 1, #positions, 8 do fields[#fields + 1] = key .. '\0' .. sub(positions, at, at + 7) end
  for i, record in ipairs(read(RECORDS, fields)) do
    if record then
      gone[#gone + 1] = fields[i]
      ages[#ages + 1] = age_of(key, fields[i], record)
    end
  end
  write('HDEL', RECORDS, gone)
  write('HDEL', PAYLOADS, gone)
  write('ZREM', PLACES, gone)
  write('ZREM', AGES, ages)
end

local function drop_all_records(key)
  local first, last = range_of(key)
  local fields = call('ZRANGEBYLEX', PLACES, first, last)
  write('HDEL', RECORDS, fields)
  write('HDEL', PAYLOADS, fields)
  call('ZREMRANGEBYLEX', PLACES, first, last)
  call('ZREMRANGEBYLEX', AGES, first, last)
end

-- Stores held records: fields, and the values of each.
local function keep_records(key, fields, records, payloads)
  local known = read(RECORDS, fields)
  local bytes, rows, places, ages = {}, {}, {}, {}
  for i, field in ipairs(fields) do
    -- A record that was offered meanwhile is the same record: the decision has counted it already.
    local record = known[i] and sub(known[i], 1, 16) .. NEVER .. sub(known[i], 25) or records[i]
    rows[2 * i - 1], rows[2 * i] = field, record
    if not known[i] then
      bytes[#bytes + 1] = field
      bytes[#bytes + 1] = payloads[i]
      places[#places + 1] = '0'
      places[#places + 1] = field
      ages[#ages + 1] = '0'
      ages[#ages + 1] = age_of(key, field, record)
    end
  end
  write('HSET', RECORDS, rows)
  write('HSET', PAYLOADS, bytes)
  write('ZADD', PLACES, places)
  write('ZADD', AGES, ages)
end
