-- ?1 id
DELETE FROM backstop_running WHERE id = ?1
