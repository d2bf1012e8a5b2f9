-- The holder of a key, and where that job stands; its state is NULL if the job is gone.
-- ?1 queue  ?2 key
SELECT k.id, k.states, k.until, j.state, r.id IS NOT NULL
FROM backstop_key k LEFT JOIN backstop_job j ON j.id = k.id LEFT JOIN backstop_running r ON r.id = k.id
WHERE k.queue = ?1 AND k.key = ?2
