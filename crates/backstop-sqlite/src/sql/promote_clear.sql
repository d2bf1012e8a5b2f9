-- Takes the head out of the line of waiting jobs, up to and with a place.
-- ?1 run_at  ?2 no
DELETE FROM backstop_due WHERE (run_at, no) <= (?1, ?2)
