-- Removes from a line what does not belong there.
-- ARGV[1] which: a state, O order, L leases, P payloads, H histories
-- then members of the line, or ids
-- Answers: how many did not belong.

local which, removed = ARGV[1], 0
local hashes = { L = LEASES, P = PAYLOADS, H = HISTORIES }

local function belongs(member, id)
  local record = call('HGET', RECORDS, id)
  if not record then return false end
  if which == 'O' then return member == member_of('1', record, id) end
  if hashes[which] then return true end
  return sub(record, 1, 1) == which and member == member_of(which, record, id)
    and call('HEXISTS', LEASES, id) == 0
end

for i = 2, #ARGV do
  local member = ARGV[i]
  if not belongs(member, sub(member, -16)) then
    if hashes[which] then
      removed = removed + call('HDEL', hashes[which], member)
    else
      removed = removed + call('ZREM', which == 'O' and ORDER or LINES[which], member)
    end
  end
end
return removed
