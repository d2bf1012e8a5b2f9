-- Writes back what a transaction changed: once per stream.
-- ?1 id  ?2 keys more  ?3 holding more  ?4 records more
UPDATE backstop_stream SET keys = keys + ?2, holding = holding + ?3, records = records + ?4 WHERE id = ?1
