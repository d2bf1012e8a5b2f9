-- As pick_dead_job.sql, for all dead jobs behind a place.
-- ?1 no of the place before
SELECT d.no, 4, d.queue, (SELECT kind FROM backstop_job WHERE no = d.no), 0, d.fingerprint
FROM backstop_dead d WHERE d.no > ?1 ORDER BY d.no
