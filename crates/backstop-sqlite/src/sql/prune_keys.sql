-- ?1 now  ?2 how many
SELECT queue, key, id FROM backstop_key WHERE forget_at <= ?1 ORDER BY forget_at LIMIT ?2
