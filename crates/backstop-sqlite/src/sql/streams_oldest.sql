-- When the oldest held record of a stream arrived.
-- ?1 stream
SELECT min(at) FROM backstop_stream_record WHERE stream = ?1
