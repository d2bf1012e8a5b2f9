-- A shard as an operator sees it, and whether its parts agree with each other: the price of a few
-- lengths. ARGV    nothing Answers: keys by their two parts; keys that keep records; records by
-- their four parts; at of the oldest record; counts.

local oldest = call('ZRANGE', HOLDING, 0, 0)[1]
return {
  call('HLEN', HEADS), call('ZCARD', NAMES), call('ZCARD', HOLDING),
  call('HLEN', RECORDS), call('HLEN', PAYLOADS), call('ZCARD', PLACES), call('ZCARD', AGES),
  oldest and sub(oldest, 1, 8) or '', call('HGETALL', COUNTS),
}
