-- Counts jobs that go from one state to another; NULL is outside. Ends are counted for ever.
CREATE FUNCTION tell(p_queue int, p_from int, p_to int, p_jobs int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tally (queue, scheduled, ready, running, retrying, done, dead, cancelled,
    total_enqueued, total_done, total_dead, total_cancelled)
  SELECT p_queue, p_jobs * d[1], p_jobs * d[2], p_jobs * d[3], p_jobs * d[4], p_jobs * d[5], p_jobs * d[6], p_jobs * d[7],
    CASE WHEN p_from IS NULL THEN p_jobs ELSE 0 END, p_jobs * e[1], p_jobs * e[2], p_jobs * e[3]
  FROM (SELECT
    ARRAY(SELECT (s IS NOT DISTINCT FROM p_to)::int - (s IS NOT DISTINCT FROM p_from)::int FROM generate_series(0, 6) s) AS d,
    ARRAY(SELECT (p_to = s)::int FROM generate_series(4, 6) s) AS e) x
  WHERE p_to IS NOT NULL;
  IF p_to IS NULL THEN
    INSERT INTO tally (queue, scheduled, ready, running, retrying, done, dead, cancelled)
    VALUES (p_queue, -p_jobs * (p_from = 0)::int, -p_jobs * (p_from = 1)::int, -p_jobs * (p_from = 2)::int,
      -p_jobs * (p_from = 3)::int, -p_jobs * (p_from = 4)::int, -p_jobs * (p_from = 5)::int, -p_jobs * (p_from = 6)::int);
  END IF;
END $$;

-- Adds up what was counted, at most so many rows of it. Rows that another one is adding up are left to it.
CREATE FUNCTION add_up(p_max int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH told AS (
    DELETE FROM tally WHERE ctid = ANY (ARRAY(SELECT ctid FROM tally LIMIT p_max FOR UPDATE SKIP LOCKED)) RETURNING *
  ), added AS (
    SELECT queue, sum(scheduled) AS scheduled, sum(ready) AS ready, sum(running) AS running, sum(retrying) AS retrying,
      sum(done) AS done, sum(dead) AS dead, sum(cancelled) AS cancelled, sum(total_enqueued) AS total_enqueued,
      sum(total_done) AS total_done, sum(total_dead) AS total_dead, sum(total_cancelled) AS total_cancelled
    FROM told GROUP BY queue
  )
  INSERT INTO total AS t SELECT * FROM added ORDER BY queue
  ON CONFLICT (queue) DO UPDATE SET
    scheduled = t.scheduled + excluded.scheduled, ready = t.ready + excluded.ready, running = t.running + excluded.running,
    retrying = t.retrying + excluded.retrying, done = t.done + excluded.done, dead = t.dead + excluded.dead,
    cancelled = t.cancelled + excluded.cancelled, total_enqueued = t.total_enqueued + excluded.total_enqueued,
    total_done = t.total_done + excluded.total_done, total_dead = t.total_dead + excluded.total_dead,
    total_cancelled = t.total_cancelled + excluded.total_cancelled;
END $$;
