-- A claim that holds nothing, whatever its count says.
-- ?1 number
DELETE FROM backstop_claim WHERE number = ?1
