-- The keys that are due, and those that a take of due keys has already.
-- ARGV[1] number
-- ARGV[2] now
-- ARGV[3] a lease that ends later than this was given before the clock was set back
-- ARGV[4] members from this prefix on are not due yet
-- ARGV[5] how many at most
-- Returns: when the next key is due; the keys that are leased under the number; due key, of those
--   that are due.

local number, now, far, max = ARGV[1], micros(ARGV[2]), micros(ARGV[3]), tonumber(ARGV[5])
local mine, due, strays, looked = {}, {}, {}, 0
for _, member in ipairs(call('ZRANGEBYLEX', TAKEN, '[' .. number, '(' .. number .. '\255')) do
  mine[#mine + 1] = sub(member, 9)
end

local function look(member)
  local head = before[sub(member, 9)]
  -- An entry without a key is left over from damage: this script removes it.
  if not head or not is_whole(head) or due_of(head) ~= sub(member, 1, 8) then
    strays[#strays + 1] = member
  elseif not is_held(head, now, far) and #due < max then
    due[#due + 1] = member
  end
end

-- A key whose lease ends at this very moment is still leased, and is skipped.
local LOOKS_MAX = 4000
local members = {}
while #mine == 0 and #due < max and looked < LOOKS_MAX do
  local keys = {}
  members = call('ZRANGEBYLEX', DUE, '-', '(' .. ARGV[4], 'LIMIT', looked, max)
  for i, member in ipairs(members) do keys[i] = sub(member, 9) end
  open(keys)
  for _, member in ipairs(members) do look(member) end
  looked = looked + #members
  if #members < max then break end
end
write('ZREM', DUE, strays)
local first = call('ZRANGE', DUE, 0, 0)[1]
return { first and sub(first, 1, 8) or '', mine, due }
