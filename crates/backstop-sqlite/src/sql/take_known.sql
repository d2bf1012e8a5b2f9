-- ?1 number  ?2 stream
SELECT 1 FROM backstop_stream_take WHERE number = ?1 AND stream = ?2
