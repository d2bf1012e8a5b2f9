-- Removes entries from a line or a hash that do not belong there.
-- ARGV[1] which: a state, O order, L leases, P payloads, E ends, H histories, F deaths, G groups, W
--   moving, V moved
-- then members of the line, or ids
-- Returns: how many did not belong.

local which, removed = ARGV[1], 0
local hashes = { L = LEASES, P = PAYLOADS, E = ENDS, H = HISTORIES, F = DEATHS, W = MOVING, V = MOVED }
local zsets = { O = ORDER, G = GROUPS }

local function is_dead(id)
  local death = call('HGET', DEATHS, id)
  return death and call('ZSCORE', DEAD, sub(death, 9) .. id) and true or false
end

local function belongs(member, id)
  if which == 'F' then return is_dead(id) end
  if which == 'G' then return member == (call('HGET', DEATHS, id) or '') .. id end
  local record = record_of(id)
  if which == 'V' then return not record end
  if not record then return false end
  -- A damaged record does not say where it belongs: it stays where an operator can see it.
  if not is_whole(record) or hashes[which] and which ~= 'P' then return true end
  if which == 'P' then return not has_payload(flags_of(record)) end
  if which == 'O' then return member == member_of('1', record, id) end
  return sub(record, 1, 1) == which and member == member_of(which, record, id)
    and call('HEXISTS', LEASES, id) == 0
end

for i = 2, #ARGV do
  local member = ARGV[i]
  if not belongs(member, sub(member, -16)) then
    if hashes[which] then
      removed = removed + call('HDEL', hashes[which], member)
    else
      removed = removed + call('ZREM', zsets[which] or LINES[which], member)
    end
  end
end
return removed
