-- ?1 no of the row before
SELECT r.no, r.queue, (SELECT kind FROM backstop_job WHERE no = r.no)
FROM backstop_running r WHERE r.no < ?1 ORDER BY r.no DESC
