-- ?1 version
INSERT INTO backstop_meta (key, value) VALUES ('least', ?1)
ON CONFLICT (key) DO UPDATE SET value = excluded.value
