-- The first ready job of the least urgent level that has one. With `ORDER BY level DESC, seq`
-- SQLite would sort the whole level.
-- ?1 queue
SELECT level, seq, no FROM backstop_ready
WHERE queue = ?1 AND level = (SELECT max(level) FROM backstop_ready WHERE queue = ?1) ORDER BY seq LIMIT 1
