-- As pick_dead_job.sql, for all dead jobs behind a number.
-- ?1 no of the row before
SELECT d.no, 4, d.queue, (SELECT kind FROM backstop_job WHERE no = d.no), 0, d.fingerprint
FROM backstop_dead d WHERE d.no > ?1 ORDER BY d.no
