-- ?1 number  ?2 stream: gone with its last key
DELETE FROM backstop_stream_take WHERE number = ?1 AND stream = ?2 AND live <= 0
