-- ?1 state  ?2 queue or NULL  ?3 kind or NULL  ?4 how many
SELECT d.no FROM backstop_due d CROSS JOIN backstop_job j ON j.no = d.no
WHERE j.state = ?1 AND (?2 IS NULL OR j.queue = ?2) AND (?3 IS NULL OR j.kind = ?3) LIMIT ?4
