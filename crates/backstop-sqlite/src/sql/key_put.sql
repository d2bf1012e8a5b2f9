-- ?1 queue  ?2 key  ?3 id  ?4 states  ?5 until
INSERT INTO backstop_key (queue, key, id, states, until) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (queue, key) DO UPDATE SET id = excluded.id, states = excluded.states, until = excluded.until, forget_at = NULL
