-- The first in line of the lowest level that has a ready job. By `ORDER BY level DESC, seq` the
-- whole level would be sorted. ?1 queue
SELECT level, seq, no FROM backstop_ready
WHERE queue = ?1 AND level = (SELECT max(level) FROM backstop_ready WHERE queue = ?1) ORDER BY seq LIMIT 1
