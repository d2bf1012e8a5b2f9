-- ?1 number  ?2 stream  ?3 how many keys left the take
UPDATE backstop_stream_take SET live = live - ?3 WHERE number = ?1 AND stream = ?2
