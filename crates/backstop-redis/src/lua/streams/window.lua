-- The held records of a key that a take returns.

-- The records of the lowest positions. Their payloads are read a few at a time, and no more once
-- they have `bytes_max` bytes.
local function window(key, max, bytes_max)
  local AT_ONCE = 4
  local first, last = range_of(key)
  local fields = call('ZRANGEBYLEX', PLACES, first, last, 'LIMIT', 0, max)
  local highest = call('ZREVRANGEBYLEX', PLACES, last, first, 'LIMIT', 0, 1)[1]
  local payloads, bytes = {}, 0
  while #payloads < #fields and bytes < bytes_max do
    local loaded = #payloads
    local slice = call('HMGET', PAYLOADS, unpack(fields, loaded + 1, math.min(loaded + AT_ONCE, #fields)))
    for i, payload in ipairs(slice) do
      if bytes >= bytes_max then break end
      payloads[loaded + i] = payload or ''
      bytes = bytes + #payloads[loaded + i]
    end
  end
  for i = #payloads + 1, #fields do fields[i] = nil end
  local records, positions = read(RECORDS, fields), {}
  for i, field in ipairs(fields) do positions[i] = sub(field, -8) end
  return { highest and sub(highest, -8) or '', concat(positions), records, payloads }, bytes
end
