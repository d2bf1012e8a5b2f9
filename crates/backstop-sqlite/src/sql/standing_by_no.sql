-- As standing_by_id.sql.
-- ?1 no
SELECT j.no, j.id, j.state, j.queue, j.level, j.seq, j.run_at, j.finished_at, j.kind, j.unique_key, j.unique_states,
  j.unique_until, r.lease
FROM backstop_job j LEFT JOIN backstop_running r ON r.id = j.id WHERE j.no = ?1
