-- Updates how many records a key holds, and when it is due.
-- ?1 id  ?2 arrived  ?3 records  ?4 due
UPDATE backstop_stream_key SET arrived = ?2, records = ?3, due = ?4 WHERE id = ?1
