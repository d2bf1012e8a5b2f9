-- Scheduled and retrying jobs of all queues, in no order that matters.
-- ?1 how many
SELECT no FROM backstop_due LIMIT ?1
