-- ?1 subscription, ?2 position, ?3 step
INSERT INTO last_update (subscription, position, step) VALUES (?1, ?2, ?3)
ON CONFLICT (subscription) DO UPDATE SET position = excluded.position, step = excluded.step
