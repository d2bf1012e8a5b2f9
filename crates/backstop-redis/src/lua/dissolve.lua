-- Turns the jobs of runs into single members of the ready line.
-- ARGV[1] about how many jobs at once
-- Returns: whether there are more.

dissolve(tonumber(ARGV[1]), '-inf', '+inf')
return call('EXISTS', RUNS)
