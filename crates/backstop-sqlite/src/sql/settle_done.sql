-- The common case, in place: no column changes its width.
-- ?1 no  ?2 now  ?3 lease  ?4 tag
UPDATE backstop_job SET state = 1, attempts = attempts + 1, reason = NULL, finished_at = ?2, settled_lease = ?3, settled_tag = ?4
WHERE no = ?1
