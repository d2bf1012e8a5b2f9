-- The job is removed, and its unique key stays behind until its period is over; without a period,
-- for ever.
-- ?1 queue  ?2 key  ?3 id
UPDATE backstop_key SET forget_at = until WHERE queue = ?1 AND key = ?2 AND id = ?3
