-- ?1 number: gone with its last job
DELETE FROM backstop_claim WHERE number = ?1 AND live <= 0
