-- ?1 queue  ?2 state  ?3 finished_at and ?4 no of the place before
SELECT f.finished_at, f.no, j.kind
FROM backstop_finished f CROSS JOIN backstop_job j ON j.no = f.no
WHERE f.queue = ?1 AND f.state = ?2 AND (f.finished_at, f.no) < (?3, ?4) ORDER BY f.finished_at DESC, f.no DESC
