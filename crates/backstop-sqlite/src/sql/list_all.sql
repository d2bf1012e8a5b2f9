-- ?1 no of the row before
SELECT no, queue, kind FROM backstop_job WHERE no < ?1 ORDER BY no DESC
