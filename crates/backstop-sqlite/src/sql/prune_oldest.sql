-- ?1 queue  ?2 state  ?3 how many
SELECT f.finished_at, f.no, j.id, j.unique_key, j.unique_states, j.unique_until
FROM backstop_finished f LEFT JOIN backstop_job j ON j.no = f.no
WHERE f.queue = ?1 AND f.state = ?2 ORDER BY f.finished_at, f.no LIMIT ?3
