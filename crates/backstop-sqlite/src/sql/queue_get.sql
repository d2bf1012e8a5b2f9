-- As queue_find.sql.
-- ?1 id
SELECT id, name, paused, next_seq, max_size, overflow, dead_max, scheduled + ready + running + retrying, dead
FROM backstop_queue WHERE id = ?1
