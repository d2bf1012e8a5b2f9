SELECT count(*) FROM backstop_queue
