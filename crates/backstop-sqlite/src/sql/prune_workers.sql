-- ?1 last seen before
DELETE FROM backstop_worker INDEXED BY backstop_worker_seen WHERE seen_at < ?1
