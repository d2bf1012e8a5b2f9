-- Reads the jobs that a move copies to another queue.
-- ARGV[1] how many bytes at most; at least one job is returned
-- then ids
-- Returns: for as many of the ids as fit: nothing if the job is not marked; or mark, record,
--   payload or nothing if the record contains it, history.

-- A damaged job goes nowhere: the other queue refuses it.
local function payload_apart(id, record)
  if is_whole(record) and has_payload(flags_of(record)) then return nil end
  return call('HGET', PAYLOADS, id) or '\0\0\0\0'
end

local answer, bytes, max = {}, 0, tonumber(ARGV[1])
for i = 2, #ARGV do
  local id = ARGV[i]
  if bytes >= max then break end
  local mark, record = call('HGET', MOVING, id), record_of(id)
  if mark and record then
    local payload, history = payload_apart(id, record) or '', call('HGET', HISTORIES, id) or ''
    bytes = bytes + #record + #payload + #history
    answer[#answer + 1] = { mark, record, payload, history }
  else
    answer[#answer + 1] = {}
  end
end
return answer
