-- ?1 queue  ?2 how many
SELECT no FROM backstop_ready WHERE queue = ?1 LIMIT ?2
