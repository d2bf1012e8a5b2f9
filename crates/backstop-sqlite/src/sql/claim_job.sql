-- The columns of a job that a worker gets.
-- ?1 no
SELECT id, kind, payload, attempts, lost, inserted_at, run_at, retry, history FROM backstop_job WHERE no = ?1
