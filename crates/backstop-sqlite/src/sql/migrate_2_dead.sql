-- What dead jobs died of, at the time of version 1. A whole read of the line, once.
SELECT f.no, f.queue, f.finished_at, (SELECT reason FROM backstop_job WHERE no = f.no),
  (SELECT history FROM backstop_job WHERE no = f.no)
FROM backstop_finished f WHERE f.state = 4
