-- What a claim still holds; a scan of the running jobs, which are few, for a claim that is repeated or seized.
-- The first twelve columns are those of claim_take.sql.
-- ?1 number
SELECT r.level, r.seq, r.no, j.id, j.kind, j.payload, j.attempts, j.lost, j.inserted_at, j.run_at, j.retry, j.history,
  r.queue, r.vanished_worker, r.vanished_lease, r.id
FROM backstop_running r LEFT JOIN backstop_job j ON j.no = r.no LEFT JOIN backstop_queue q ON q.id = r.queue
WHERE r.lease = ?1 ORDER BY q.name, r.level, r.seq
