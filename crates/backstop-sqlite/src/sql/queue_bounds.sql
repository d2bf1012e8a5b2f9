-- ?1 id  ?2 max_size  ?3 overflow  ?4 dead_max
UPDATE backstop_queue SET max_size = ?2, overflow = ?3, dead_max = ?4 WHERE id = ?1
