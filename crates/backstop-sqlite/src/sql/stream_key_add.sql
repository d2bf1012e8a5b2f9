-- Adds a key without any state.
-- ?1 stream  ?2 key  ?3 no lease
INSERT INTO backstop_stream_key (number, turn, watermark, arrived, records, due, stream, key, standing)
VALUES (?3, 0, NULL, 0, 0, NULL, ?1, ?2, x'')
