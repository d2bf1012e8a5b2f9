-- Opens claims, counts the jobs that leave them, and closes them.

local function close_claim(number)
  call('HDEL', CLAIMS, number)
  call('ZREM', TERMS, number)
  call('HDEL', HELD, number)
  call('HDEL', LEFT, number)
end

-- gone: number -> how many jobs the claim loses.
local function leave_claims(gone)
  for number, count in pairs(gone) do
    if call('HINCRBY', LEFT, number, -count) <= 0 then close_claim(number) end
  end
end

local function open_claim(number, holder, till, ids)
  call('HSET', CLAIMS, number, holder)
  call('ZADD', TERMS, till, number)
  call('HSET', HELD, number, concat(ids))
  call('HSET', LEFT, number, #ids)
end
