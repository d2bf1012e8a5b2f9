-- ?1 key  ?2 position
SELECT 1 FROM backstop_stream_record WHERE key = ?1 AND position = ?2
