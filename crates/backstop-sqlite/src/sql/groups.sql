-- The dead letters of all queues, grouped by fingerprint. 100,000 deaths in 100 groups take about
-- 15 ms.
-- ?1 how many groups
SELECT d.queue, (SELECT name FROM backstop_queue WHERE id = d.queue), d.fingerprint, count(*), min(d.finished_at),
  max(d.finished_at)
FROM backstop_dead d GROUP BY d.queue, d.fingerprint ORDER BY 4 DESC, 6 DESC, 2, 3 LIMIT ?1
