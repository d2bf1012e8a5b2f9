-- Whether any worker has a heartbeat later than this.
-- ?1 the time
SELECT EXISTS (SELECT 1 FROM backstop_worker INDEXED BY backstop_worker_seen WHERE seen_at > ?1)
