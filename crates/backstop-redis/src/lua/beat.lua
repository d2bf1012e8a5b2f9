-- Extends claims with a heartbeat.
-- ARGV[1] until
-- ARGV[2] a claim that ends later than this was made before the clock was set back, and is cut
--   short
-- ARGV[3] how many claims follow that are kept alive by jobs of other queues
-- then the numbers of these claims; then id number for each lease
-- Returns: the leases that are lost, which are neither current nor the one the job was settled
--   under; then for each claim that a lease keeps alive: number, its holder.

-- A Redis without free memory refuses a command that may need more, but only as the first write of
-- a script. So this harmless write lets claimed jobs still be kept and ended.
call('HDEL', LEASES, '')

local till, kept, count = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local alive, seen, ids, lost = {}, {}, {}, {}

-- Whether the last settlement of a job was made under this lease.
local function is_settled(id, number)
  local record = record_of(id)
  return record and sub(record, 10, 17) == number
end

for at = 4 + count, #ARGV do ids[#ids + 1] = sub(ARGV[at], 1, 16) end
local leases = read(LEASES, ids)
for i = 1, #ids do
  local named = ARGV[3 + count + i]
  local number = sub(named, 17)
  if not leases[i] or sub(leases[i], 1, 8) ~= number then
    if not is_settled(ids[i], number) then lost[#lost + 1] = named end
  elseif not seen[number] then
    seen[number] = true
    alive[#alive + 1] = number
  end
end

local answer = { concat(lost) }
for i, holder in ipairs(read(CLAIMS, alive)) do
  answer[#answer + 1] = alive[i]
  answer[#answer + 1] = holder or ''
end

local function extend(number)
  local current = tonumber(call('ZSCORE', TERMS, number))
  if current and (current > kept or current < till) then call('ZADD', TERMS, till, number) end
end
for at = 4, 3 + count do extend(ARGV[at]) end
for _, number in ipairs(alive) do extend(number) end
return answer
