-- ?1 id
SELECT j.id, q.name, j.kind, j.state, j.payload, j.level, j.attempts, j.lost, j.requeues, j.run_at, j.inserted_at,
  j.finished_at, j.unique_key, j.retry, j.history, j.reason, r.id IS NOT NULL, c.worker, c.until
FROM backstop_job j JOIN backstop_queue q ON q.id = j.queue
LEFT JOIN backstop_running r ON r.id = j.id LEFT JOIN backstop_claim c ON c.number = r.lease
WHERE j.id = ?1
