-- ?1 the last one seen, ?2 how many at most
SELECT seq, subscription, position, effect, range_to, range_count, at_ms, line FROM line
WHERE seq > ?1 ORDER BY seq LIMIT ?2
