-- ?1 no
DELETE FROM backstop_dead WHERE no = ?1
