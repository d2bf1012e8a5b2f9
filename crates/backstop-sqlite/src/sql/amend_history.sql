-- ?1 no  ?2 history
UPDATE backstop_job SET history = ?2 WHERE no = ?1
