-- When the oldest record of a stream came in.
-- ?1 stream
SELECT min(at) FROM backstop_stream_record WHERE stream = ?1
