-- The queues that have ready jobs, by name, from one of them on.
-- ?1 name
SELECT id, name FROM backstop_queue WHERE name >= ?1 AND ready > 0 ORDER BY name
