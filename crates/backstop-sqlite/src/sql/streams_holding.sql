-- As streams_keys.sql, for keys that hold records.
-- ?1 stream  ?2 the key before  ?3 how many
SELECT k.key, k.watermark, k.standing, k.records, k.due, k.id,
  (SELECT until FROM backstop_stream_lease WHERE key = k.id),
  (SELECT worker FROM backstop_stream_take
   WHERE number = (SELECT number FROM backstop_stream_lease WHERE key = k.id) AND stream = k.stream)
FROM backstop_stream_key k WHERE k.stream = ?1 AND k.key > ?2 AND k.records > 0 ORDER BY k.key LIMIT ?3
