-- ?1 no  ?2 state  ?3 attempts to add  ?4 lost leases to add  ?5 seq  ?6 run_at, NULL as it was
-- ?7 finished_at  ?8 lease  ?9 tag  ?10 reason  ?11 1 if the history is rewritten  ?12 history
-- ?13 1 if its attempts so far no longer count
UPDATE backstop_job SET state = ?2, attempts = iif(?13, 0, attempts) + ?3, lost = lost + ?4, seq = ?5,
  run_at = coalesce(?6, run_at), finished_at = ?7, settled_lease = ?8, settled_tag = ?9, reason = ?10,
  history = iif(?11, ?12, history)
WHERE no = ?1
