-- Removes a take with its last key.
-- ?1 number  ?2 stream
DELETE FROM backstop_stream_take WHERE number = ?1 AND stream = ?2 AND live <= 0
