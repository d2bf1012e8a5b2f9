-- The ORDER BY makes SQLite read the index: otherwise it would read all records if statistics know
-- of a single one.
-- ?1 key
SELECT no, at FROM backstop_stream_record WHERE key = ?1 ORDER BY position
