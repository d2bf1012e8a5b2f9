-- ?1 run_at  ?2 no
INSERT INTO backstop_due (run_at, no) VALUES (?1, ?2)
