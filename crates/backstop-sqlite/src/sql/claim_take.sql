-- The first of a queue's line. A place in the line whose job is gone comes with NULLs.
-- ?1 queue  ?2 how many
SELECT r.level, r.seq, r.no, j.id, j.kind, j.payload, j.attempts, j.lost, j.inserted_at, j.run_at, j.retry, j.history
FROM backstop_ready r LEFT JOIN backstop_job j ON j.no = r.no
WHERE r.queue = ?1 ORDER BY r.level, r.seq LIMIT ?2
