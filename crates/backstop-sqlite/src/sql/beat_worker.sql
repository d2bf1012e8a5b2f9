-- ?1 name  ?2 queues, one a line  ?3 now
INSERT INTO backstop_worker (name, queues, seen_at) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET queues = excluded.queues, seen_at = excluded.seen_at
