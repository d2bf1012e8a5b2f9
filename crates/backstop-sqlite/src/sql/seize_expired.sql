-- The rule of `backstop_core::lease::is_expired`. The first part comes before the second.
-- ?1 now  ?2 the latest end that a worker can have requested  ?3 how many of each part at most
SELECT * FROM (SELECT number, worker, until FROM backstop_claim WHERE until < ?1 ORDER BY until, number LIMIT ?3)
UNION ALL
SELECT * FROM (SELECT number, worker, until FROM backstop_claim WHERE until > ?2 ORDER BY until, number LIMIT ?3)
