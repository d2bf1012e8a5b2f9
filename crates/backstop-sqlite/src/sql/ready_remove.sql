-- Compare the number too: a job with a damaged place should not remove the place of another job.
-- ?1 queue  ?2 level  ?3 seq  ?4 no
DELETE FROM backstop_ready WHERE queue = ?1 AND level = ?2 AND seq = ?3 AND no = ?4
