-- Gives a name to a queue that jobs refer to, and whose row is missing or damaged.
-- ?1 id  ?2 name
INSERT INTO backstop_queue (id, name) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET name = excluded.name
