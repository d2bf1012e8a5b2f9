-- The rule of `backstop_core::lease::is_expired`. The first part comes before the second.
-- ?1 now  ?2 the longest anybody can have asked for  ?3 at most so many of each part
SELECT * FROM (SELECT number, worker, until FROM backstop_claim WHERE until < ?1 ORDER BY until, number LIMIT ?3)
UNION ALL
SELECT * FROM (SELECT number, worker, until FROM backstop_claim WHERE until > ?2 ORDER BY until, number LIMIT ?3)
