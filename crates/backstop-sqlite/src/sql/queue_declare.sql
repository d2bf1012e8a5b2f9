-- Marks a queue as configured. A queue that has bounds is configured already.
-- ?1 id  ?2 overflow  ?3 dead_max
UPDATE backstop_queue SET overflow = ?2, dead_max = coalesce(dead_max, ?3)
WHERE id = ?1 AND overflow IS NULL
