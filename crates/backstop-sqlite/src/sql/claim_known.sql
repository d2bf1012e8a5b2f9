-- ?1 number
SELECT 1 FROM backstop_claim WHERE number = ?1
