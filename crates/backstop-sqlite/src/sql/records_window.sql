-- ?1 key  ?2 how many
SELECT position, step, tenant, at, arrival, payload FROM backstop_stream_record WHERE key = ?1 ORDER BY position LIMIT ?2
