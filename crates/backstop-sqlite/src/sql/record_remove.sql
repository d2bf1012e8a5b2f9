-- ?1 no
DELETE FROM backstop_stream_record WHERE no = ?1
