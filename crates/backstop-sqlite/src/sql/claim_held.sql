-- What a claim still holds; a scan of the running jobs, which are few, for a claim that is repeated
-- or seized. ?1 number
SELECT no, level, seq, queue, id, vanished_worker, vanished_lease, begun FROM backstop_running WHERE lease = ?1
