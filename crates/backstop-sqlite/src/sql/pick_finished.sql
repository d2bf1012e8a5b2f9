-- ?1 queue  ?2 state  ?3 kind or NULL  ?4 how many
SELECT f.no FROM backstop_finished f
WHERE f.queue = ?1 AND f.state = ?2 AND (?3 IS NULL OR ?3 = (SELECT kind FROM backstop_job WHERE no = f.no)) LIMIT ?4
