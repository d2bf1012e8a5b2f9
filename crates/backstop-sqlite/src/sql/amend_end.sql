-- ?1 no  ?2 state  ?3 now  ?4 reason
UPDATE backstop_job SET state = ?2, finished_at = ?3, reason = ?4 WHERE no = ?1
