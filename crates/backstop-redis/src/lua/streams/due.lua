-- Which keys are due, and which a take of those that are due has already. ARGV[1] number ARGV[2]
-- now ARGV[3] a lease that ends later than this was given before the clock was set back ARGV[4]
-- what is not due yet begins with this ARGV[5] at most so many Answers: when the next key is due;
-- the keys that are under the number; due key, of those that are due.

local number, now, far, max = ARGV[1], micros(ARGV[2]), micros(ARGV[3]), tonumber(ARGV[5])
local mine, due, strays, looked = {}, {}, {}, 0
for _, member in ipairs(call('ZRANGEBYLEX', TAKEN, '[' .. number, '(' .. number .. '\255')) do
  mine[#mine + 1] = sub(member, 9)
end

local function look(member)
  local head = before[sub(member, 9)]
  -- A place without a key is left over from damage: it goes with this look.
  if not head or not is_whole(head) or due_of(head) ~= sub(member, 1, 8) then
    strays[#strays + 1] = member
  elseif not is_held(head, now, far) and #due < max then
    due[#due + 1] = member
  end
end

-- Those whose lease ends at this very moment are somebody's still, and are passed over.
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
