-- ?1 run_at and ?2 no of the place before
SELECT d.run_at, d.no, j.state, j.queue, j.kind
FROM backstop_due d CROSS JOIN backstop_job j ON j.no = d.no
WHERE (d.run_at, d.no) > (?1, ?2) ORDER BY d.run_at, d.no
