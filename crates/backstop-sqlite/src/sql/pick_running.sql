-- The running jobs of all queues.
-- ?1 how many
SELECT no FROM backstop_running LIMIT ?1
