-- ?1 the oldest heartbeat that stays
DELETE FROM backstop_worker INDEXED BY backstop_worker_seen WHERE seen_at < ?1
