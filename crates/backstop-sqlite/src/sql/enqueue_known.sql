-- The queue of the job that has an id.
-- ?1 id
SELECT queue FROM backstop_job WHERE id = ?1
