-- ?1 no  ?2 seq  ?3 now  ?4 1 if the job had ended, and its attempts start anew  ?5 queue
UPDATE backstop_job SET state = 0, seq = ?2, run_at = ?3, attempts = attempts * (1 - ?4), requeues = requeues + ?4,
  reason = NULL, queue = ?5
WHERE no = ?1
