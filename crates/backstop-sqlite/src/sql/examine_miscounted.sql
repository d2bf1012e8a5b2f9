-- Keys that have not as many records as they say. Reads all of them. No parameters.
SELECT count(*) FROM backstop_stream_key k
WHERE k.records <> (SELECT count(*) FROM backstop_stream_record WHERE key = k.id)
