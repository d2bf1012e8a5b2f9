-- How many jobs are ready.
-- ARGV    nothing
-- Answers: so many.

return ready_count()
