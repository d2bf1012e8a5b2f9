-- ?1 the oldest heartbeat
SELECT w.name, w.queues, w.seen_at, (SELECT total(c.live) FROM backstop_claim c WHERE c.worker = w.name)
FROM backstop_worker w INDEXED BY backstop_worker_seen WHERE w.seen_at >= ?1 ORDER BY w.name
