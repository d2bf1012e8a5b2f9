-- ?1 stream  ?2 place  ?3 how many to add
INSERT INTO backstop_stream_count (stream, place, number) VALUES (?1, ?2, ?3)
ON CONFLICT (stream, place) DO UPDATE SET number = number + excluded.number
