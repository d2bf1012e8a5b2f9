-- ?1 id  ?2 due
UPDATE backstop_stream_key SET due = ?2 WHERE id = ?1
