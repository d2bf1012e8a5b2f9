-- Frees a unique key, but only if this job holds it.
-- ?1 queue  ?2 key  ?3 id
DELETE FROM backstop_key WHERE queue = ?1 AND key = ?2 AND id = ?3
