-- ?1 queue  ?2 state  ?3 how many
SELECT finished_at, no FROM backstop_finished WHERE queue = ?1 AND state = ?2 ORDER BY finished_at, no LIMIT ?3
