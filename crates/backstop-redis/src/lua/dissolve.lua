-- Makes runs single members of the ready line.
-- ARGV[1] about so many jobs at once
-- Answers: whether there are more.

dissolve(tonumber(ARGV[1]), '-inf', '+inf')
return call('EXISTS', RUNS)
