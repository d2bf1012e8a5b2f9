-- ?1 name
INSERT INTO backstop_stream (name) VALUES (?1)
