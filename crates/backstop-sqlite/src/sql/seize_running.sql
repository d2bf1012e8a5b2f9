SELECT lease, queue, level, seq, id FROM backstop_running
