-- As list_dead.sql, for all queues.
-- ?2 fingerprint  ?3 finished_at and ?4 no of the row before
SELECT d.finished_at, d.no, (SELECT kind FROM backstop_job WHERE no = d.no)
FROM backstop_dead d INDEXED BY backstop_dead_at
WHERE d.fingerprint = ?2 AND (d.finished_at, d.no) < (?3, ?4) ORDER BY d.finished_at DESC, d.no DESC
