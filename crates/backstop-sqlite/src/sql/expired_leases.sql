-- Claims that ended before a time: how many, and when the first did.
-- ?1 the time  ?2 at most so many
SELECT count(*), min(until) FROM (SELECT until FROM backstop_claim WHERE until < ?1 ORDER BY until LIMIT ?2)
