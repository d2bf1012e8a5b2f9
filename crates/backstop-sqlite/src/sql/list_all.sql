-- ?1 no of the place before
SELECT no, queue, kind FROM backstop_job WHERE no < ?1 ORDER BY no DESC
