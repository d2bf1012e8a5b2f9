-- ?1 number  ?2 worker  ?3 until  ?4 jobs  ?5 since
INSERT INTO backstop_claim (number, worker, until, live, since) VALUES (?1, ?2, ?3, ?4, ?5)
