-- Makes leases last longer.
-- ARGV[1] until
-- ARGV[2] a lease that ends later than this was given before the clock was set back, and gives way
-- then for each lease: key, number
-- Answers: one letter a lease (K kept, L lost).

-- A full Redis refuses what may need memory, but only as the first write of a script: what is taken
-- can still be kept.
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
