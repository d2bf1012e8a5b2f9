-- Payloads that are stored apart from their records.

local function keep_payloads(payloads)
  if #payloads == 0 then return end
  write('HSET', PAYLOADS, payloads)
  call('HINCRBY', META, 'apart', #payloads / 2)
end

local function drop_payloads(ids)
  local dropped = 0
  for first = 1, #ids, SLICE do
    dropped = dropped + call('HDEL', PAYLOADS, unpack(ids, first, math.min(first + SLICE - 1, #ids)))
  end
  if dropped > 0 then call('HINCRBY', META, 'apart', -dropped) end
end
