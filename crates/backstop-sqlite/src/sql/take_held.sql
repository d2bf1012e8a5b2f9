-- What a take still holds; a scan of the keys that somebody has, for a take that is repeated.
-- ?1 number
SELECT key FROM backstop_stream_lease WHERE number = ?1
