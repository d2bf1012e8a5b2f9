-- Leases keys. A repeated take returns those keys of the first call that are still leased under its
-- number.
-- ARGV[1] which: K these keys, S these keys even if other workers have them, D those of these keys
--   that are due
-- ARGV[2] number
-- ARGV[3] until
-- ARGV[4] now
-- ARGV[5] a lease that ends later than this was given before the clock was set back
-- ARGV[6] length of worker, worker
-- ARGV[7] how many records of a key are returned at most
-- ARGV[8] after how many bytes of records no further key is taken
-- then keys, each of them once
-- Returns: A if the take was made before, otherwise F; when the next key is due, only for D; for
--   each key its head as it was, empty if there was none, 0 if it has to wait for the next take, or
--   nothing if it cannot be taken; of those with records: index of the key, highest position,
--   positions, records, payloads.

local which, number, till, worker = ARGV[1], ARGV[2], ARGV[3], ARGV[6]
local now, far, window_max, bytes_max = micros(ARGV[4]), micros(ARGV[5]), tonumber(ARGV[7]), tonumber(ARGV[8])
local keys, heads, windows, bytes = { unpack(ARGV, 9) }, {}, {}, 0
open(keys)

local function is_any_under()
  for _, key in ipairs(keys) do
    if before[key] and is_under(before[key], number) then return true end
  end
  return false
end

local function add_window(i, head)
  if sub(head, 46, 49) == NONE then return end
  local found, size = window(keys[i], window_max, 16777216)
  bytes = bytes + size
  windows[#windows + 1] = i
  for _, part in ipairs(found) do windows[#windows + 1] = part end
end

local function is_to_be_had(head)
  if which == 'D' then
    local due = head and due_of(head)
    if not due or micros(due) > now then return false end
  end
  return which == 'S' or not head or not is_held(head, now, far)
end

-- A key with a damaged head can only be seized (S), and has nothing but its records then.
local function readable(key)
  local head = before[key]
  if not head or is_whole(head) then return head, true end
  return recounted(key, EMPTY), which == 'S'
end

local lease = number .. NONE .. till .. (which == 'D' and 'D' or 'K')

local function hand_out(i, key, head)
  local from = head or EMPTY
  local due = sub(from, 46, 49) == NONE and NEVER or till
  add_window(i, from)
  put(key, lease .. due .. sub(from, 30, 58) .. worker .. sub(from, worker_end(from) + 1))
  return head or ''
end

local function give(i, key)
  local head, is_readable = readable(key)
  if not is_readable or not is_to_be_had(head) then return false end
  if bytes >= bytes_max then return 0 end
  return hand_out(i, key, head)
end

local function next_due()
  local first = which == 'D' and call('ZRANGE', DUE, 0, 0)[1]
  return first and sub(first, 1, 8) or ''
end

if is_any_under() then
  for i, key in ipairs(keys) do
    local head = before[key]
    heads[i] = head and is_under(head, number) and head
    if heads[i] then add_window(i, head) end
  end
  return { 'A', next_due(), heads, windows }
end
for i, key in ipairs(keys) do heads[i] = give(i, key) end
commit()
return { 'F', next_due(), heads, windows }
