-- ?1 queue or NULL  ?2 kind or NULL  ?3 how many
SELECT r.no FROM backstop_running r
WHERE (?1 IS NULL OR r.queue = ?1) AND (?2 IS NULL OR ?2 = (SELECT kind FROM backstop_job WHERE no = r.no)) LIMIT ?3
