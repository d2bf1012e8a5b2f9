-- ?1 id  ?2 since when it is empty; NULL if it is not
UPDATE backstop_queue SET empty_since = ?2 WHERE id = ?1
