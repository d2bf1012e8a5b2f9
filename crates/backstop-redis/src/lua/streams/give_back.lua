-- Gives back keys that a repeated take leased in addition to those that it had leased before.
-- ARGV[1] number
-- ARGV[2] now
-- then for each key: key, its head as it was, empty if there was none
-- Returns: nothing.

local number, at, keys = ARGV[1], ARGV[2], {}
for i = 3, #ARGV, 2 do keys[#keys + 1] = ARGV[i] end
open(keys)

for i, key in ipairs(keys) do
  local head, former = before[key], ARGV[2 * i + 2]
  if head and is_under(head, number) and sub(head, 9, 12) == NONE then
    local from = former == '' and EMPTY or former
    if sub(head, 38, 45) == sub(from, 38, 45) then
      put(key, former ~= '' and former)
    else
      put(key, sub(from, 1, 21) .. at .. sub(head, 30, 58) .. sub(from, 59))
    end
  end
end
commit()
