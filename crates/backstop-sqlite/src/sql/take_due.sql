-- A lease that is not over, by the rule of `backstop_core::lease::is_expired`, keeps its key back.
-- This matters only for a lease that ends at this very moment: any other leased key is due when its
-- lease ends.
-- ?1 stream  ?2 now  ?3 the latest end that a worker can have requested  ?4 how many
SELECT k.id FROM backstop_stream_key k
WHERE k.stream = ?1 AND k.due <= ?2
  AND NOT EXISTS (SELECT 1 FROM backstop_stream_lease WHERE key = k.id AND until BETWEEN ?2 AND ?3)
ORDER BY k.due LIMIT ?4
