-- The queues that one pruning looks at, by name, with the columns that say whether they are empty
-- and whether a user configured them.
-- ?1 the name to start behind  ?2 how many
SELECT id, name, done, cancelled, dead, scheduled + ready + running + retrying, paused OR overflow IS NOT NULL, empty_since
FROM backstop_queue WHERE name > ?1 ORDER BY name LIMIT ?2
