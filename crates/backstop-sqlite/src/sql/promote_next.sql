SELECT run_at FROM backstop_due ORDER BY run_at, no LIMIT 1
