-- ?1 name
INSERT INTO backstop_queue (name) VALUES (?1)
