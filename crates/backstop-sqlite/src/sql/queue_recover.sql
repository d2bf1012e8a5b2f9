-- Gives a queue that jobs name, and whose row is gone or cannot be read, a name again.
-- ?1 id  ?2 name
INSERT INTO backstop_queue (id, name) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET name = excluded.name
