-- ?1 queue  ?2 kind or NULL  ?3 how many
SELECT r.no FROM backstop_ready r
WHERE r.queue = ?1 AND (?2 IS NULL OR ?2 = (SELECT kind FROM backstop_job WHERE no = r.no)) LIMIT ?3
