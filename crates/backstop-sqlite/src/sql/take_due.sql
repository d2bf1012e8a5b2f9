-- Leases that are not over, by the rule of `backstop_core::lease::is_expired`, hold keys back: only
-- one that ends in this very moment, as whatever else is under a lease is due when that ends. ?1
-- stream  ?2 now  ?3 the longest anybody can have asked for  ?4 how many
SELECT k.id FROM backstop_stream_key k
WHERE k.stream = ?1 AND k.due <= ?2
  AND NOT EXISTS (SELECT 1 FROM backstop_stream_lease WHERE key = k.id AND until BETWEEN ?2 AND ?3)
ORDER BY k.due LIMIT ?4
