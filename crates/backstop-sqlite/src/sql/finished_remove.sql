-- ?1 queue  ?2 state  ?3 finished_at  ?4 no
DELETE FROM backstop_finished WHERE queue = ?1 AND state = ?2 AND finished_at = ?3 AND no = ?4
