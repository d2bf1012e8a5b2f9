-- As job_by_id.sql.
-- ?1 no
SELECT j.id, (SELECT name FROM backstop_queue WHERE id = j.queue), j.kind, j.state, j.payload, j.level, j.attempts, j.lost,
  j.requeues, j.run_at, j.inserted_at, j.finished_at, j.unique_key, j.retry, j.history, j.reason,
  EXISTS (SELECT 1 FROM backstop_running WHERE id = j.id),
  (SELECT worker FROM backstop_claim WHERE number = (SELECT lease FROM backstop_running WHERE id = j.id)),
  (SELECT until FROM backstop_claim WHERE number = (SELECT lease FROM backstop_running WHERE id = j.id)),
  (SELECT since FROM backstop_claim WHERE number = (SELECT lease FROM backstop_running WHERE id = j.id))
FROM backstop_job j WHERE j.no = ?1
