-- The order is of no use but to keep SQLite to the index, where statistics know of a single death.
-- ?1 queue  ?2 fingerprint  ?3 how many
SELECT no FROM backstop_dead WHERE queue = ?1 AND fingerprint = ?2 ORDER BY finished_at LIMIT ?3
