-- ?1 now
SELECT number, worker FROM backstop_claim WHERE until < ?1 ORDER BY until, number
