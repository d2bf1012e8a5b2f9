-- Whether the last settlement of a job was made under this lease.
-- ?1 id  ?2 lease  ?3 queue
SELECT 1 FROM backstop_job WHERE id = ?1 AND settled_lease = ?2 AND queue = ?3
