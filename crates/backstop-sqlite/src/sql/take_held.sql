-- The keys that a take still has, for a take that is repeated. It scans the leased keys.
-- ?1 number
SELECT key FROM backstop_stream_lease WHERE number = ?1
