-- ?1 queue  ?2 state  ?3 finished_at  ?4 no
INSERT INTO backstop_finished (queue, state, finished_at, no) VALUES (?1, ?2, ?3, ?4)
