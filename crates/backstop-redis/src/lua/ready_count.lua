-- ARGV    nothing
-- Returns: how many jobs are ready.

return ready_count()
