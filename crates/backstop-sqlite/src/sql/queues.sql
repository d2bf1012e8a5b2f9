-- All queues, and when the job at the head of each line was due to run.
SELECT q.name, q.paused, q.scheduled, q.ready, q.running, q.retrying, q.done, q.dead, q.cancelled,
  q.total_enqueued, q.total_done, q.total_dead, q.total_cancelled,
  (SELECT (SELECT run_at FROM backstop_job WHERE no = r.no) FROM backstop_ready r
   WHERE r.queue = q.id ORDER BY r.level, r.seq LIMIT 1),
  q.max_size, q.overflow, q.dead_max
FROM backstop_queue q ORDER BY q.name
