-- The common case, in place: no index changes.
-- ?1 id  ?2 number  ?3 turn  ?4 watermark  ?5 standing
UPDATE backstop_stream_key SET number = ?2, turn = ?3, watermark = ?4, standing = ?5 WHERE id = ?1
