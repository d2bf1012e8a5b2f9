-- Takes the payloads that stand apart for those that should.
-- ARGV    nothing
-- Answers: how many were miscounted.

local apart, counted = call('HLEN', PAYLOADS), tonumber(call('HGET', META, 'apart')) or 0
if apart ~= counted then call('HSET', META, 'apart', apart) end
return math.abs(apart - counted)
