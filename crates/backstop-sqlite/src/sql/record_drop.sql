-- ?1 key  ?2 position
DELETE FROM backstop_stream_record WHERE key = ?1 AND position = ?2
