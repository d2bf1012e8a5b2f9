-- ?1 id  ?2 lease  ?3 tag  ?4 queue
SELECT 1 FROM backstop_job WHERE id = ?1 AND settled_lease = ?2 AND settled_tag = ?3 AND queue = ?4
