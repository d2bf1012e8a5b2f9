-- Queues that are not in use.

-- Whether the queue has been empty for `empty_for`, and no user configured it. Records since when
-- it is empty: as long as no job is enqueued, the total of enqueued jobs stays the same.
local function is_unused(now, empty_for)
  -- The registry has the name, but the queue was never made.
  if call('EXISTS', META) == 0 then return true end
  local meta = call('HMGET', META, 'gate', 'overflow', 'enqueued', 'empty_since', 'empty_at')
  if meta[1] == 'paused' or meta[2]
    or call('EXISTS', RECORDS, ORDER, LEASES, CLAIMS, UNIQUE, MOVING, MOVED, RECEIVED) > 0 then
    if meta[4] then call('HDEL', META, 'empty_since', 'empty_at') end
    return false
  end
  local enqueued = meta[3] or '0'
  if not meta[4] or meta[5] ~= enqueued then
    call('HSET', META, 'empty_since', string.format('%.0f', now), 'empty_at', enqueued)
    return false
  end
  return now - tonumber(meta[4]) >= empty_for
end
