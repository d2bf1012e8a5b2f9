-- ?1 key
SELECT max(position) FROM backstop_stream_record WHERE key = ?1
