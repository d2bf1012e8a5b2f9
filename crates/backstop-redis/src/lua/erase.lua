-- Removes a job whose record is damaged, from every place where it was found.
-- ARGV[1] its id
-- then for each place: a state or O (order), and the member; or U, and the unique key it holds
-- Returns: whether it was removed.

local id = ARGV[1]
local record, lease = call('HGET', RECORDS, id), call('HGET', LEASES, id)
if not record or is_whole(record) then return 0 end
for at = 2, #ARGV, 2 do
  local which, what = ARGV[at], ARGV[at + 1]
  if which == 'U' then
    call('HDEL', UNIQUE, what)
    call('ZREM', LAPSES, what)
  else
    call('ZREM', which == 'O' and ORDER or LINES[which], what)
  end
end
if lease then
  call('HDEL', LEASES, id)
  leave_claims({ [sub(lease, 1, 8)] = 1 })
end
remove_death(id)
call('HDEL', RECORDS, id)
call('HDEL', ENDS, id)
drop_payloads({ id })
call('HDEL', HISTORIES, id)
call('HDEL', MOVING, id)
return 1
