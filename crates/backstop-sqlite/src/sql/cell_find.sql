-- ?1 name
SELECT name, version, value FROM backstop_cell WHERE name = ?1
