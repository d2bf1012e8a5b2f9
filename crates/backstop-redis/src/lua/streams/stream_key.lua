-- One key, with the records that a take of it would return.
-- ARGV[1] key
-- ARGV[2] how many records at most
-- ARGV[3] after how many bytes of payload no further record is returned
-- Returns: nothing if there is no such key; or head, and if it has records: highest position,
--   positions, records, payloads.

local head = call('HGET', HEADS, ARGV[1])
if not head then return {} end
if not is_whole(head) or sub(head, 46, 49) == NONE then return { head } end
return { head, unpack((window(ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])))) }
