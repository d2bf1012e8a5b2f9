-- ?1 id  ?2 1 if paused
UPDATE backstop_queue SET paused = ?2 WHERE id = ?1
