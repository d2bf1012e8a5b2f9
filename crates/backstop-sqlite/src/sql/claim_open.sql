-- ?1 number  ?2 worker  ?3 until  ?4 jobs
INSERT INTO backstop_claim (number, worker, until, live) VALUES (?1, ?2, ?3, ?4)
