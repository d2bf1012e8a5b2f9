-- ?1 stream
SELECT place, number FROM backstop_stream_count WHERE stream = ?1
