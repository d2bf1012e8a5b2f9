-- As stream_key_find.sql, with its name and its stream.
-- ?1 id
SELECT id, number, turn, arrived, records, due, watermark, standing, key, stream FROM backstop_stream_key WHERE id = ?1
