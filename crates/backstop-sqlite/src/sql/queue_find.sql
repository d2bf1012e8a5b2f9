-- ?1 name
SELECT id, name, paused, next_seq, max_size, overflow, dead_max, scheduled + ready + running + retrying, dead
FROM backstop_queue WHERE name = ?1
