-- Writes back what a transaction changed: once per stream.
-- ?1 id  ?2 keys to add  ?3 keys with held records to add  ?4 records to add
UPDATE backstop_stream SET keys = keys + ?2, holding = holding + ?3, records = records + ?4 WHERE id = ?1
