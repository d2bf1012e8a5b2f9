-- ?1 queue  ?2 level  ?3 seq
DELETE FROM backstop_ready WHERE queue = ?1 AND level = ?2 AND seq = ?3
