-- ?1 no of the place before
SELECT r.no, r.queue, j.kind
FROM backstop_running r CROSS JOIN backstop_job j ON j.no = r.no
WHERE r.no < ?1 ORDER BY r.no DESC
