-- Removes the head from the line of scheduled and retrying jobs, up to and with a row.
-- ?1 run_at  ?2 no
DELETE FROM backstop_due WHERE (run_at, no) <= (?1, ?2)
