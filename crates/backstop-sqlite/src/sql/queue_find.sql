-- ?1 name
SELECT id, name, paused, next_seq FROM backstop_queue WHERE name = ?1
