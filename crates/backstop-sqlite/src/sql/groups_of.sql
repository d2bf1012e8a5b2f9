-- As groups.sql, for one queue.
-- ?1 how many groups  ?2 queue
SELECT d.queue, (SELECT name FROM backstop_queue WHERE id = d.queue), d.fingerprint, count(*), min(d.finished_at),
  max(d.finished_at)
FROM backstop_dead d WHERE d.queue = ?2 GROUP BY d.queue, d.fingerprint ORDER BY 4 DESC, 6 DESC, 2, 3 LIMIT ?1
