-- ?1 detector
SELECT standing FROM standing WHERE detector = ?1
