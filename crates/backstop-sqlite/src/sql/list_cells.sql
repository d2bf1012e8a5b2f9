-- ?1 the name to start at  ?2 how many
SELECT name, version, value FROM backstop_cell WHERE name >= ?1 ORDER BY name LIMIT ?2
