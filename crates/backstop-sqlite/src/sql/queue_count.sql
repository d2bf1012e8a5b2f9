-- Writes back what a transaction changed: once per queue, not once per job. Jobs may come with any
-- change, so the queue is not known to be empty any more.
-- ?1 id  ?2 next_seq  ?3..?9 change of each state's count  ?10..?13 change of each total
UPDATE backstop_queue SET
  next_seq = ?2, empty_since = NULL,
  scheduled = scheduled + ?3, ready = ready + ?4, running = running + ?5, retrying = retrying + ?6,
  done = done + ?7, dead = dead + ?8, cancelled = cancelled + ?9,
  total_enqueued = total_enqueued + ?10, total_done = total_done + ?11,
  total_dead = total_dead + ?12, total_cancelled = total_cancelled + ?13
WHERE id = ?1
