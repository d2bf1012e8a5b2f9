-- ?1 key  ?2 until  ?3 turn
UPDATE backstop_stream_lease SET until = ?2, turn = ?3 WHERE key = ?1
