-- The queues that have ready jobs, by name.
-- ?1 the name to start at
SELECT id, name FROM backstop_queue WHERE name >= ?1 AND ready > 0 ORDER BY name
