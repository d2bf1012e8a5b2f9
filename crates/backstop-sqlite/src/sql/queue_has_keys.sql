-- ?1 queue
SELECT 1 FROM backstop_key WHERE queue = ?1 LIMIT 1
