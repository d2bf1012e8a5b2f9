-- ?1 stream  ?2 key
SELECT id, number, turn, arrived, records, due, watermark, standing FROM backstop_stream_key WHERE stream = ?1 AND key = ?2
