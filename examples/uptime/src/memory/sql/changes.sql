-- ?1 the last one seen
SELECT seq, change FROM change WHERE seq > ?1 ORDER BY seq
