-- The holder of a key, and where that job stands; its state is NULL if the job is gone.
-- ?1 queue  ?2 key
SELECT k.id, k.states, k.until, (SELECT state FROM backstop_job WHERE id = k.id),
  EXISTS (SELECT 1 FROM backstop_running WHERE id = k.id)
FROM backstop_key k WHERE k.queue = ?1 AND k.key = ?2
