-- ?1 name
SELECT id FROM backstop_stream WHERE name = ?1
