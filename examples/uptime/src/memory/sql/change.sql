-- ?1 change
INSERT INTO change (change) VALUES (?1)
