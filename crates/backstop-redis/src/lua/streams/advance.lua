-- Applies decisions about keys, each by itself.
-- ARGV[1] now
-- ARGV[2] how many records the call may touch before the rest has to wait for the next call
-- then for each decision: key; change; counts: index, number of each that is not 0; and if records
--   follow: the positions to drop, how many records to hold, and for each of those position,
--   record, payload
-- a change, by byte:
--   1-8 number  9-12 turn  13-20 arrived when the key was taken  21 then (K keep, R release, C
--   clear)
--   22-29 until or due or NULs  30-37 for K: a lease that ends later than this is cut short
--   38 whether records follow (0, 1)  39-47 watermark, as in a head  48-49 NULs
--   50- standing (the state of the key)
-- Returns: one letter per decision, as far as the call came (A applied, W applied and the key is
--   due, S stale).

-- A Redis without free memory refuses a command that may need more, but only as the first write of
-- a script. So this harmless write lets leased keys still be advanced and released.
call('HDEL', HEADS, '')

local at, work_max, work = ARGV[1], tonumber(ARGV[2]), 0
local decisions, keys, letters, times = {}, {}, {}, {}

local function decision_at(from)
  local decision = { key = ARGV[from], change = ARGV[from + 1], counts = ARGV[from + 2] }
  if sub(decision.change, 38, 38) == '0' then return decision, from + 3 end
  local count = tonumber(ARGV[from + 4])
  decision.drop, decision.hold, decision.holds = ARGV[from + 3], from + 5, count
  return decision, from + 5 + 3 * count
end

local from = 3
while from <= #ARGV do
  local decision
  decision, from = decision_at(from)
  decisions[#decisions + 1], keys[#keys + 1] = decision, decision.key
end
open(keys)

-- The answer to a decision that changes nothing; nil if the decision is to be applied.
local function answered(head, change)
  if not head then return sub(change, 21, 21) == 'C' and 'A' or 'S' end
  if not is_whole(head) or sub(head, 1, 8) ~= sub(change, 1, 8) then return 'S' end
  if struct.unpack('>I4', change, 9) <= struct.unpack('>I4', head, 9) then return 'A' end
  return sub(head, 13, 20) == NEVER and 'S' or nil
end

local function hold(key, decision)
  local fields, records, payloads, seen = {}, {}, {}, {}
  for at = decision.hold, decision.hold + 3 * decision.holds - 1, 3 do
    local field = key .. '\0' .. ARGV[at]
    if not seen[field] then
      seen[field] = true
      fields[#fields + 1], records[#records + 1], payloads[#payloads + 1] = field, ARGV[at + 1], ARGV[at + 2]
    end
  end
  keep_records(key, fields, records, payloads)
end

local function with_records(key, head, decision)
  if not decision.drop then return head end
  drop_records(key, decision.drop)
  hold(key, decision)
  work = work + #decision.drop / 8 + decision.holds
  return recounted(key, head)
end

local function released(head, change, due)
  return sub(change, 1, 12) .. NEVER .. 'K' .. due .. sub(head, 30, 49) .. sub(change, 39)
end

local function release(key, head, change)
  local due = sub(change, 22, 29)
  if sub(head, 38, 45) ~= sub(change, 13, 20) and struct.unpack('>I8', head, 38) > struct.unpack('>I8', change, 13) then
    due = at
  end
  put(key, released(head, change, due))
  return due == NEVER and 'A' or 'W'
end

local function keep(key, head, change)
  local stands = sub(change, 1, 12) .. sub(head, 13, 49) .. sub(change, 39, 47)
  stands = stands .. sub(head, 59, worker_end(head)) .. sub(change, 50)
  put(key, extended(stands, sub(change, 22, 29), sub(change, 30, 37)))
  return 'A'
end

local function clear(key, head, change)
  work = work + count_of(head)
  drop_all_records(key)
  local is_nothing = sub(change, 39, 39) == '0' and #change == 49
  put(key, not is_nothing and recounted(key, released(head, change, NEVER)))
  return 'A'
end

local ends = { R = release, K = keep, C = clear }
for i, decision in ipairs(decisions) do
  if work > work_max then break end
  local key, change = decision.key, decision.change
  local head = after[key]
  letters[i] = answered(head, change)
  if not letters[i] then
    head = with_records(key, head, decision)
    letters[i] = ends[sub(change, 21, 21)](key, head, change)
    times[decision.counts] = (times[decision.counts] or 0) + 1
  end
end
commit()

-- Most decisions of a batch have the same counts: parse these once.
local sums = {}
for counts, count in pairs(times) do
  for at = 1, #counts, 9 do
    local which = byte(counts, at)
    sums[which] = (sums[which] or 0) + count * struct.unpack('>I8', counts, at + 1)
  end
end
for which, sum in pairs(sums) do
  local added = redis.pcall('HINCRBY', COUNTS, which, string.format('%.0f', sum))
  -- A sum that is too large for a number stays at the largest one.
  if type(added) == 'table' then call('HSET', COUNTS, which, '9223372036854775807') end
end
return concat(letters)
