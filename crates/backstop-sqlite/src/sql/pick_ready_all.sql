-- ?1 how many
SELECT no FROM backstop_ready LIMIT ?1
