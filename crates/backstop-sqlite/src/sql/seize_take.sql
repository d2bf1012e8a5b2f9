-- A worker that seized the job and died before it settled it did not run it: the row keeps the
-- first worker that vanished. A job that was settled, or seized by another process, since this call
-- found it is no longer under that lease.
-- ?1 id  ?2 lease  ?3 worker that vanished  ?4 its lease
UPDATE backstop_running SET lease = ?2, vanished_worker = coalesce(vanished_worker, ?3), vanished_lease = coalesce(vanished_lease, ?4)
WHERE id = ?1 AND lease = ?4
