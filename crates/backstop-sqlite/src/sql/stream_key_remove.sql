-- ?1 id
DELETE FROM backstop_stream_key WHERE id = ?1
