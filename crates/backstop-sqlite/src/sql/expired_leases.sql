-- How many claims ended before a time, and when the first did.
-- ?1 the time  ?2 how many claims to count at most
SELECT count(*), min(until) FROM (SELECT until FROM backstop_claim WHERE until < ?1 ORDER BY until LIMIT ?2)
