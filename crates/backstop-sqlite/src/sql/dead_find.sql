-- ?1 no
SELECT queue, fingerprint, finished_at FROM backstop_dead WHERE no = ?1
