-- ?1 run_at  ?2 no
DELETE FROM backstop_due WHERE run_at = ?1 AND no = ?2
