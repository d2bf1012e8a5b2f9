-- The holder of a unique key, as in key_find.sql, by the name of its queue.
-- ?1 name of the queue  ?2 key
SELECT k.id, k.states, k.until, (SELECT state FROM backstop_job WHERE id = k.id),
  EXISTS (SELECT 1 FROM backstop_running WHERE id = k.id)
FROM backstop_key k WHERE k.queue = (SELECT id FROM backstop_queue WHERE name = ?1) AND k.key = ?2
