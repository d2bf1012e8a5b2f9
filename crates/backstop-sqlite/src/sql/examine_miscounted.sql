-- Keys whose number of held records is wrong. Reads all keys. No parameters.
SELECT count(*) FROM backstop_stream_key k
WHERE k.records <> (SELECT count(*) FROM backstop_stream_record WHERE key = k.id)
