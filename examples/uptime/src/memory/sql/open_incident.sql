-- ?1 detector, ?2 position of the failure
INSERT INTO incident (detector, opened_ms) VALUES (?1, ?2)
