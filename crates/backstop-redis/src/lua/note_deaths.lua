-- Stores the fingerprints of dead jobs.
-- ARGV    for each job: its member of the dead line, its fingerprint
-- Returns: how many were stored.

local noted = 0
for at = 1, #ARGV, 2 do
  local member = ARGV[at]
  if call('ZSCORE', DEAD, member) then
    remove_death(sub(member, 17))
    add_death(member, ARGV[at + 1])
    noted = noted + 1
  end
end
return noted
