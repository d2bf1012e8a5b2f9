-- As list_finished_oldest.sql, for all queues: it reads the index that has the order.
-- ?2 state  ?3 finished_at and ?4 no of the row before
SELECT f.finished_at, f.no, (SELECT kind FROM backstop_job WHERE no = f.no)
FROM backstop_finished f INDEXED BY backstop_finished_at
WHERE f.state = ?2 AND (f.finished_at, f.no) > (?3, ?4) ORDER BY f.finished_at, f.no
