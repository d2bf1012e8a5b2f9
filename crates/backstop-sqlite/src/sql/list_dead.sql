-- As list_finished.sql, for the dead jobs of one fingerprint.
-- ?1 queue  ?2 fingerprint  ?3 finished_at and ?4 no of the row before
SELECT d.finished_at, d.no, (SELECT kind FROM backstop_job WHERE no = d.no)
FROM backstop_dead d
WHERE d.queue = ?1 AND d.fingerprint = ?2 AND (d.finished_at, d.no) < (?3, ?4) ORDER BY d.finished_at DESC, d.no DESC
