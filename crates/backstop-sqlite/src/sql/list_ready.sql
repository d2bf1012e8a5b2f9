-- ?1 queue  ?2 level and ?3 seq of the row before
SELECT r.level, r.seq, r.no, (SELECT kind FROM backstop_job WHERE no = r.no)
FROM backstop_ready r WHERE r.queue = ?1 AND (r.level, r.seq) > (?2, ?3) ORDER BY r.level, r.seq
