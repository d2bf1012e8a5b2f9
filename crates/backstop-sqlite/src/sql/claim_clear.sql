-- Removes the head of a level from the ready line, up to and with a place.
-- ?1 queue  ?2 level  ?3 seq
DELETE FROM backstop_ready WHERE queue = ?1 AND level = ?2 AND seq <= ?3
