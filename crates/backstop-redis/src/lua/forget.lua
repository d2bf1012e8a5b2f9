-- Deletes a queue that is not in use.
-- ARGV[1] now
-- ARGV[2] how long it must have been empty
-- Returns: 1 if it is gone.

if not is_unused(tonumber(ARGV[1]), tonumber(ARGV[2])) then return 0 end
for i = 1, 26 do call('DEL', KEYS[i]) end
return 1
