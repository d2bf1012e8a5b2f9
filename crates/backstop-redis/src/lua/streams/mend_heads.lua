-- Recounts the held records of keys, and adds keys to the indexes that their heads name.
-- ARGV[1] now
-- then keys
-- Returns: how many entries were wrong.

local mended = 0

local function put_into(index, prefix, key)
  if prefix then mended = mended + call('ZADD', index, 'NX', 0, prefix .. key) end
end

local function mend(key, head)
  local counted = recounted(key, head)
  if counted ~= head then
    -- The key holds records that its head did not count: make it due, so that a worker looks at it.
    if count_of(counted) > count_of(head) and not due_of(head) then
      counted = sub(counted, 1, 21) .. ARGV[1] .. sub(counted, 30)
    end
    call('HSET', HEADS, key, counted)
    mended = mended + 1
  end
  put_into(DUE, due_of(counted), key)
  put_into(HOLDING, oldest_of(counted), key)
  put_into(TAKEN, taken_under(counted), key)
end

for i = 2, #ARGV do
  local key = ARGV[i]
  local head = call('HGET', HEADS, key)
  if head then
    put_into(NAMES, '', key)
    if is_whole(head) then mend(key, head) end
  end
end
return mended
