-- Removes a claim with its last job.
-- ?1 number
DELETE FROM backstop_claim WHERE number = ?1 AND live <= 0
