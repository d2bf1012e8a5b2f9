-- A shard as an operator sees it, and the sizes of its parts, which show whether they agree with
-- each other. It costs a few length commands.
-- ARGV    nothing
-- Returns: keys by their two parts; keys that hold records; records by their four parts; at of the
--   oldest held record; counts.

local oldest = call('ZRANGE', HOLDING, 0, 0)[1]
return {
  call('HLEN', HEADS), call('ZCARD', NAMES), call('ZCARD', HOLDING),
  call('HLEN', RECORDS), call('HLEN', PAYLOADS), call('ZCARD', PLACES), call('ZCARD', AGES),
  oldest and sub(oldest, 1, 8) or '', call('HGETALL', COUNTS),
}
