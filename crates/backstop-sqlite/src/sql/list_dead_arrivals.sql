-- As list_all.sql, for dead jobs and with their fingerprints.
-- ?1 no of the row before
SELECT d.no, d.queue, (SELECT kind FROM backstop_job WHERE no = d.no), d.fingerprint
FROM backstop_dead d WHERE d.no < ?1 ORDER BY d.no DESC
