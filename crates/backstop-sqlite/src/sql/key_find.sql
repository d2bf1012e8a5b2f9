-- The holder of a unique key, and the state of that job; the state is NULL if the job is removed.
-- ?1 queue  ?2 key
SELECT k.id, k.states, k.until, (SELECT state FROM backstop_job WHERE id = k.id),
  EXISTS (SELECT 1 FROM backstop_running WHERE id = k.id)
FROM backstop_key k WHERE k.queue = ?1 AND k.key = ?2
