-- ?1 state  ?2 how many
SELECT no FROM backstop_finished INDEXED BY backstop_finished_at WHERE state = ?1 LIMIT ?2
