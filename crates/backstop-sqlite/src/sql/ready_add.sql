-- ?1 queue  ?2 level  ?3 seq  ?4 no
INSERT INTO backstop_ready (queue, level, seq, no) VALUES (?1, ?2, ?3, ?4)
