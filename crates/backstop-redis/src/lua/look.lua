-- What a filter needs to know of jobs.
-- ARGV    ids
-- Returns: for each id nothing, ? if its record is damaged, or: its state; F and the fingerprint of
--   a dead job, otherwise -; its kind.

local records, ends, leases, deaths, answer = read(RECORDS, ARGV), read(ENDS, ARGV), read(LEASES, ARGV), read(DEATHS, ARGV), {}

local function seen(record, lease, death)
  if not is_whole(record) then return '?' end
  local kind = sub(record, 81, 80 + byte(record, 79) * 256 + byte(record, 80))
  return (lease and '2' or sub(record, 1, 1)) .. (death and 'F' .. sub(death, 1, 8) or '-') .. kind
end

for i, record in ipairs(records) do
  answer[i] = record and seen(with_end(record, ends[i]), leases[i], deaths[i])
end
return answer
