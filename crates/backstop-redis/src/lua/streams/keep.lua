-- Extends leases of keys.
-- ARGV[1] until
-- ARGV[2] a lease that ends later than this was given before the clock was set back, and is cut
--   short
-- then for each lease: key, number
-- Returns: one letter per lease (K kept, L lost).

-- A Redis without free memory refuses a command that may need more, but only as the first write of
-- a script. So this harmless write lets leases still be extended.
call('HDEL', HEADS, '')

local keys, letters = {}, {}
for i = 3, #ARGV, 2 do keys[#keys + 1] = ARGV[i] end
open(keys)

for i, key in ipairs(keys) do
  local head = after[key]
  if head and is_under(head, ARGV[2 * i + 2]) then
    letters[i] = 'K'
    put(key, extended(head, ARGV[1], ARGV[2]))
  else
    letters[i] = 'L'
  end
end
commit()
return concat(letters)
