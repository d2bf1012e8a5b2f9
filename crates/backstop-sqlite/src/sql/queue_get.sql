-- ?1 id
SELECT id, name, paused, next_seq FROM backstop_queue WHERE id = ?1
