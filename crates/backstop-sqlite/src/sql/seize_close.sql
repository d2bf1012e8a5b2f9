-- Removes a claim without jobs, whatever its count says.
-- ?1 number
DELETE FROM backstop_claim WHERE number = ?1
