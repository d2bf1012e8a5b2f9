-- ?1 id  ?2 no  ?3 lease  ?4 queue  ?5 level  ?6 seq
INSERT INTO backstop_running (id, no, lease, queue, level, seq) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
