-- The holder of the key holds this record, too: an offer stored it meanwhile.
-- ?1 key  ?2 position
UPDATE backstop_stream_record SET arrival = 0 WHERE key = ?1 AND position = ?2
