-- ?1 key
SELECT number, until, turn FROM backstop_stream_lease WHERE key = ?1
