-- Recounts the payloads that are apart from their records.
-- ARGV    nothing
-- Returns: how far the old count was off.

local apart, counted = call('HLEN', PAYLOADS), tonumber(call('HGET', META, 'apart')) or 0
if apart ~= counted then call('HSET', META, 'apart', apart) end
return math.abs(apart - counted)
