-- A key that is leased, or whose expired lease is still here, stays as it is.
-- ?1 key  ?2 number  ?3 until
INSERT INTO backstop_stream_lease (key, number, until, turn) VALUES (?1, ?2, ?3, 0) ON CONFLICT (key) DO NOTHING
