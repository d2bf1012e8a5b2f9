-- ?1 queue  ?2 state  ?3 how many
SELECT no FROM backstop_finished WHERE queue = ?1 AND state = ?2 LIMIT ?3
