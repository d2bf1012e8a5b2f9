-- As pick_job.sql, for all jobs behind a number. 50,000 rows of 1,000,000 take about 22 ms; a line
-- of 3,000 dead jobs beside them, and those jobs by number, take 2 to 4 ms: so this is for long
-- lines only.
-- ?1 no of the row before
SELECT j.no, j.state, j.queue, j.kind, iif(j.state = 0, EXISTS (SELECT 1 FROM backstop_running WHERE id = j.id), 0)
FROM backstop_job j WHERE j.no > ?1 ORDER BY j.no
