-- ?1 key  ?2 number  ?3 until
UPDATE backstop_stream_lease SET number = ?2, until = ?3, turn = 0 WHERE key = ?1
