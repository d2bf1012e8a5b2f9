-- ?1 last seen before
DELETE FROM backstop_worker WHERE seen_at < ?1
