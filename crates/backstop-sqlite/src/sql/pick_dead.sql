-- The ORDER BY only keeps SQLite to the index, even if statistics know of a single death.
-- ?1 queue  ?2 fingerprint  ?3 how many
SELECT no FROM backstop_dead WHERE queue = ?1 AND fingerprint = ?2 ORDER BY finished_at LIMIT ?3
