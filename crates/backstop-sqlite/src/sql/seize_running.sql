SELECT r.lease, q.name, r.level, r.seq, r.id
FROM backstop_running r LEFT JOIN backstop_queue q ON q.id = r.queue
