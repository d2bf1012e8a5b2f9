-- ?1 no  ?2 seq
UPDATE backstop_job SET state = 0, seq = ?2 WHERE no = ?1
