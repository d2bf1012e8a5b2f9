-- ?1 now  ?2 how many
SELECT d.run_at, d.no, j.state, j.queue, j.level
FROM backstop_due d LEFT JOIN backstop_job j ON j.no = d.no
WHERE d.run_at <= ?1 ORDER BY d.run_at, d.no LIMIT ?2
