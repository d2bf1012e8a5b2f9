-- ?1 queue  ?2 level and ?3 seq of the place before
SELECT r.level, r.seq, r.no, j.kind
FROM backstop_ready r CROSS JOIN backstop_job j ON j.no = r.no
WHERE r.queue = ?1 AND (r.level, r.seq) > (?2, ?3) ORDER BY r.level, r.seq
