-- The run that a lease names, if it is the current lease of the job.
-- ?1 id  ?2 lease  ?3 queue
SELECT no, level, seq FROM backstop_running WHERE id = ?1 AND lease = ?2 AND queue = ?3
