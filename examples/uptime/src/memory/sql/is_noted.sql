-- ?1 subscription, ?2 position, ?3 effect
SELECT EXISTS (SELECT 1 FROM line WHERE subscription = ?1 AND position = ?2 AND effect = ?3)
