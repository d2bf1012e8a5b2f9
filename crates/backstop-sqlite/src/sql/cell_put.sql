-- ?1 name  ?2 version  ?3 value
INSERT INTO backstop_cell (name, version, value) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET version = excluded.version, value = excluded.value
