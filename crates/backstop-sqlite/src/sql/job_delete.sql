-- ?1 no
DELETE FROM backstop_job WHERE no = ?1
