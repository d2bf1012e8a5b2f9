-- ?1 number  ?2 stream  ?3 worker  ?4 keys
INSERT INTO backstop_stream_take (number, stream, worker, live) VALUES (?1, ?2, ?3, ?4)
