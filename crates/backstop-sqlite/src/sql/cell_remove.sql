-- ?1 name
DELETE FROM backstop_cell WHERE name = ?1
