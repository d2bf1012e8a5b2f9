-- ?1 id
SELECT 1 FROM backstop_job WHERE id = ?1
