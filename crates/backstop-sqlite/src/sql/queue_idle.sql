-- ?1 id  ?2 since when the queue is empty; NULL if it is not
UPDATE backstop_queue SET empty_since = ?2 WHERE id = ?1
