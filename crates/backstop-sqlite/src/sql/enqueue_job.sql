-- A job whose id is known changes nothing.
-- ?1 state  ?2 seq  ?3 run_at  ?4 id  ?5 queue  ?6 level  ?7 kind  ?8 unique_key  ?9 unique_states
-- ?10 unique_until  ?11 inserted_at  ?12 retry  ?13 payload  ?14 no lease  ?15 no tag
INSERT INTO backstop_job (state, attempts, lost, requeues, seq, run_at, finished_at, settled_lease, settled_tag,
  reason, history, id, queue, level, kind, unique_key, unique_states, unique_until, inserted_at, retry, payload)
VALUES (?1, 0, 0, 0, ?2, ?3, ?11, ?14, ?15, NULL, NULL, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (id) DO NOTHING
