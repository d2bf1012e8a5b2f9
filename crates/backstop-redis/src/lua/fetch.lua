-- Jobs as an operator sees them.
-- ARGV    ids
-- Returns: for each id nothing, or: record, payload unless the record contains it, history, worker,
--   until and since of its holder.

local answer = {}
for i, id in ipairs(ARGV) do
  local record, lease = record_of(id), call('HGET', LEASES, id)
  local holder = lease and call('HGET', CLAIMS, sub(lease, 1, 8))
  answer[i] = record and {
    record, call('HGET', PAYLOADS, id), call('HGET', HISTORIES, id),
    worker_of(holder), lease and call('ZSCORE', TERMS, sub(lease, 1, 8)), since_of(holder),
  } or {}
end
return answer
