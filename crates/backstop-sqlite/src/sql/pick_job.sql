-- ?1 no
SELECT j.no, j.state, j.queue, j.kind, iif(j.state = 0, EXISTS (SELECT 1 FROM backstop_running WHERE id = j.id), 0)
FROM backstop_job j WHERE j.no = ?1
