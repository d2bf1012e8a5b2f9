-- The jobs that a claim still has, for a claim that is repeated or seized. It scans the running
-- jobs, which are few.
-- ?1 number
SELECT no, level, seq, queue, id, vanished_worker, vanished_lease, begun FROM backstop_running WHERE lease = ?1
