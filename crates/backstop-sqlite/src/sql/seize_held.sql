-- A job that was just seized.
-- ?1 id
SELECT no, level, seq, queue, id, vanished_worker, vanished_lease, begun FROM backstop_running WHERE id = ?1
