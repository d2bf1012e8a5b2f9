-- As pick_job.sql, for a dead job and with its fingerprint.
-- ?1 no
SELECT d.no, 4, d.queue, (SELECT kind FROM backstop_job WHERE no = d.no), 0, d.fingerprint
FROM backstop_dead d WHERE d.no = ?1
