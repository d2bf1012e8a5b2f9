-- The rule of `backstop_core::lease::is_expired`.
-- ?1 now  ?2 the longest anybody can have asked for
SELECT number, worker, until FROM backstop_claim WHERE until < ?1 OR until > ?2 ORDER BY until, number
