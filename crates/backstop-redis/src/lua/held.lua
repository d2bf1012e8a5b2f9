-- What a claim holds, and what a worker gets of it.

local function worker_of(holder) return holder and string.match(holder, '^[^\n]*\n(.*)$') end

-- What is left of a claim, in the order of its places.
local function held_under(number)
  local packed, all = call('HGET', HELD, number) or '', {}
  for first = 1, #packed, 16 do all[#all + 1] = sub(packed, first, first + 15) end
  local leases, held = read(LEASES, all), {}
  for i, id in ipairs(all) do
    local lease = leases[i]
    if lease and sub(lease, 1, 8) == number then
      held[#held + 1] = { id = id, lease = lease, place = tonumber(place_of(lease)) }
    end
  end
  table.sort(held, function(a, b) return a.place < b.place end)
  return held
end

-- What a worker gets of these jobs: ids, records, payloads, and of those that have some: which, history.
local function handed_out(ids, records, payloads)
  local histories = {}
  for i = 1, #ids do
    local record = records[i]
    -- What cannot be read is not handed out, and keeps nobody from the rest.
    if record and #record < 80 then
      records[i] = false
    elseif record and has_history(flags_of(record)) then
      histories[#histories + 1] = i
      histories[#histories + 1] = call('HGET', HISTORIES, ids[i])
    end
  end
  return { concat(ids), records, payloads, histories }
end

local function handed_out_again(held)
  local ids, leases = {}, {}
  for i, run in ipairs(held) do ids[i], leases[i] = run.id, run.lease end
  local answer = handed_out(ids, read(RECORDS, ids), read(PAYLOADS, ids))
  answer[5] = leases
  return answer
end
