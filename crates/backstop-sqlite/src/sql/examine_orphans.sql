-- Records without a key. Reads all records. No parameters.
SELECT count(*) FROM backstop_stream_record r WHERE NOT EXISTS (SELECT 1 FROM backstop_stream_key WHERE id = r.key)
