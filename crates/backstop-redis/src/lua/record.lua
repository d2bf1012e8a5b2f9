-- Parses records, and names the lines (sorted sets) of the states.

local LINES = { ['0'] = SCHEDULED, ['1'] = READY, ['3'] = RETRYING, ['4'] = DONE, ['5'] = DEAD, ['6'] = CANCELLED }
local NEVER = string.rep('\0', 8)

local function level_of(record) return byte(record, 53) - 48 end
local function flags_of(record) return byte(record, 36) - 48 end
local function has_history(flags) return flags % 2 == 1 end
local function has_key(flags) return flags % 4 >= 2 end
-- Small payloads are stored in the record, so that one read returns both.
local function has_payload(flags) return flags % 8 >= 4 end
-- Of a lease: the job had no attempt before.
local function is_first(flags) return flags >= 8 end

-- A record with the changes of its last settlement.
local function with_end(record, ended)
  return record and ended and ended .. sub(record, #ended + 1) or record
end

local function record_of(id)
  return with_end(call('HGET', RECORDS, id), call('HGET', ENDS, id))
end

local function write_record(id, record)
  call('HSET', RECORDS, id, record)
  call('HDEL', ENDS, id)
end

-- Whether these bytes are a valid record, as far as scripts read it.
local function is_whole(record)
  if #record < 80 or not string.find(record, '^[0-6]') then return false end
  local level, flags = level_of(record), flags_of(record)
  return level >= 0 and level <= 3 and flags >= 0 and flags <= 5
    and #record >= 80 + byte(record, 79) * 256 + byte(record, 80)
end

local function key_of(record)
  return sub(record, 81 + byte(record, 79) * 256 + byte(record, 80))
end

-- The time at this byte of a record.
local function micros_at(record, from)
  local high, low = struct.unpack('>I4I4', record, from)
  return (high - 2147483648) * 4294967296 + low
end

-- The member of a job in the line of its state.
local function member_of(state, record, id)
  local arrival = sub(record, 37, 44)
  if state == '1' then return arrival .. id end
  if state == '0' or state == '3' then return sub(record, 28, 35) .. arrival .. id end
  return sub(record, 2, 9) .. arrival .. id
end
