-- ?1 stream
SELECT min(due) FROM backstop_stream_key WHERE stream = ?1 AND due IS NOT NULL
