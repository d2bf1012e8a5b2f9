-- The first jobs of a queue's ready line. The jobs are then read one by one (claim_job.sql): a join
-- with them would read the whole job table for each once a user runs ANALYZE while it holds a
-- single row. See plans.rs.
-- ?1 queue  ?2 how many
SELECT level, seq, no FROM backstop_ready WHERE queue = ?1 ORDER BY level, seq LIMIT ?2
