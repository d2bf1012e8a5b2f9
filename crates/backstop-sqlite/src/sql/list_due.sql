-- One look into the table of jobs for each place: one for each column took three times as long, 180 ms for 50,000 places.
-- ?1 run_at and ?2 no of the place before
SELECT d.run_at, d.no, j.state, j.queue, j.kind
FROM backstop_due d LEFT JOIN backstop_job j ON j.no = d.no
WHERE (d.run_at, d.no) > (?1, ?2) ORDER BY d.run_at, d.no
