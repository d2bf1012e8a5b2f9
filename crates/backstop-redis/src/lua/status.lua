-- A queue as an operator sees it. The counts are the lengths of the lines, so they cannot be wrong.
-- ARGV    nothing
-- Returns: nothing if there is no such queue; or gate; how many jobs were ever enqueued, done,
--   dead, cancelled; how many are scheduled, ready, running, retrying, done, dead, cancelled;
--   max_size, overflow and dead_max, each empty if not set; when the job that is claimed next was
--   due to run.

if call('EXISTS', META) == 0 then return {} end
local meta = call('HMGET', META, 'gate', 'enqueued', 'done', 'dead', 'cancelled', 'max_size', 'overflow', 'dead_max')
local first = first_in_line(1)[1]
local record = first and call('HGET', RECORDS, first)
return {
  meta[1] or 'open', meta[2] or '0', meta[3] or '0', meta[4] or '0', meta[5] or '0',
  call('ZCARD', SCHEDULED), ready_count(), call('HLEN', LEASES), call('ZCARD', RETRYING),
  call('ZCARD', DONE), call('ZCARD', DEAD), call('ZCARD', CANCELLED),
  meta[6] or '', meta[7] or '', meta[8] or '', record and sub(record, 28, 35),
}
