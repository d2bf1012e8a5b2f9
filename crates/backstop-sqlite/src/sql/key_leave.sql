-- The job is gone, and its key stays behind until its period is over; without one, for ever.
-- ?1 queue  ?2 key  ?3 id
UPDATE backstop_key SET forget_at = until WHERE queue = ?1 AND key = ?2 AND id = ?3
