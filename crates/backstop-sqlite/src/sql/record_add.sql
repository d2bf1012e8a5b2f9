-- A record whose position is held already changes nothing.
-- ?1 key  ?2 position  ?3 arrival  ?4 step  ?5 at  ?6 stream  ?7 tenant  ?8 payload
INSERT INTO backstop_stream_record (key, position, arrival, step, at, stream, tenant, payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (key, position) DO NOTHING
