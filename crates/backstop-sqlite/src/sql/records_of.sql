-- In an order, so that the index is read: where statistics know of a single record, all of them
-- would be else. ?1 key
SELECT no, at FROM backstop_stream_record WHERE key = ?1 ORDER BY position
