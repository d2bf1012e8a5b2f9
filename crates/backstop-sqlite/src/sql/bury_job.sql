-- ?1 attempts  ?2 lost  ?3 requeues  ?4 run_at  ?5 finished_at  ?6 reason  ?7 history  ?8 id
-- ?9 queue  ?10 level  ?11 kind  ?12 unique_key  ?13 unique_states  ?14 unique_until
-- ?15 inserted_at  ?16 retry  ?17 payload  ?18 no lease  ?19 no tag
INSERT INTO backstop_job (state, attempts, lost, requeues, seq, run_at, finished_at, settled_lease, settled_tag,
  reason, history, id, queue, level, kind, unique_key, unique_states, unique_until, inserted_at, retry, payload)
VALUES (4, ?1, ?2, ?3, 0, ?4, ?5, ?18, ?19, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
