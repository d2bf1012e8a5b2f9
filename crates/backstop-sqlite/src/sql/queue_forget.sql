-- ?1 id of a queue without jobs and keys
DELETE FROM backstop_queue WHERE id = ?1
