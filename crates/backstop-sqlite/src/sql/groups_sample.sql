-- The ids of a group's jobs, the last one first.
-- ?1 queue  ?2 fingerprint
SELECT (SELECT id FROM backstop_job WHERE no = d.no)
FROM backstop_dead d WHERE d.queue = ?1 AND d.fingerprint = ?2 ORDER BY d.finished_at DESC, d.no DESC
