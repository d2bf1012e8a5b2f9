-- The state and place of a job that is to be moved. No join, as in claim_take.sql.
-- ?1 id
SELECT j.no, j.id, j.state, j.queue, j.level, j.seq, j.run_at, j.finished_at, j.kind, j.unique_key, j.unique_states,
  j.unique_until, (SELECT lease FROM backstop_running WHERE id = j.id)
FROM backstop_job j WHERE j.id = ?1
