-- Removes entries from an index that do not belong there.
-- ARGV[1] which: N names, D due, H holding, T taken, P payloads, L places, A ages
-- then members of it
-- Returns: how many did not belong.

local which, removed = ARGV[1], 0
local zsets = { N = NAMES, D = DUE, H = HOLDING, T = TAKEN, L = PLACES, A = AGES }
local prefixes = { D = due_of, H = oldest_of, T = taken_under }

local function belongs(member)
  if which == 'N' then return call('HEXISTS', HEADS, member) == 1 end
  if which == 'P' or which == 'L' then return call('HEXISTS', RECORDS, member) == 1 end
  if which == 'A' then
    local record = call('HGET', RECORDS, sub(member, 1, -17) .. sub(member, -8))
    return record and sub(record, 9, 16) == sub(member, -16, -9)
  end
  local head = call('HGET', HEADS, sub(member, 9))
  return head and is_whole(head) and prefixes[which](head) == sub(member, 1, 8)
end

for i = 2, #ARGV do
  if not belongs(ARGV[i]) then
    if which == 'P' then
      removed = removed + call('HDEL', PAYLOADS, ARGV[i])
    else
      removed = removed + call('ZREM', zsets[which], ARGV[i])
    end
  end
end
return removed
