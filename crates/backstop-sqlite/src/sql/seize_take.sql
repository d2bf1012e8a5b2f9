-- A seizer that dies before it judged did not run the job: the first to vanish stays the one to
-- name. What was settled, or taken over by another process, since it was found is no longer under
-- that lease. ?1 id  ?2 lease  ?3 worker that vanished  ?4 its lease
UPDATE backstop_running SET lease = ?2, vanished_worker = coalesce(vanished_worker, ?3), vanished_lease = coalesce(vanished_lease, ?4)
WHERE id = ?1 AND lease = ?4
