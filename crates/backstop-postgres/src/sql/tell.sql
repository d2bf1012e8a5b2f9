-- Counts jobs that go from one state to another; NULL is outside. Ends are counted for ever.
CREATE FUNCTION tell(p_queue int, p_from int, p_to int, p_jobs int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_from int := coalesce(p_from, -1);
  v_to int := coalesce(p_to, -1);
BEGIN
  INSERT INTO tally (queue, scheduled, ready, running, retrying, done, dead, cancelled,
    total_enqueued, total_done, total_dead, total_cancelled)
  VALUES (p_queue, p_jobs * ((v_to = 0)::int - (v_from = 0)::int), p_jobs * ((v_to = 1)::int - (v_from = 1)::int),
    p_jobs * ((v_to = 2)::int - (v_from = 2)::int), p_jobs * ((v_to = 3)::int - (v_from = 3)::int),
    p_jobs * ((v_to = 4)::int - (v_from = 4)::int), p_jobs * ((v_to = 5)::int - (v_from = 5)::int),
    p_jobs * ((v_to = 6)::int - (v_from = 6)::int), p_jobs * (p_from IS NULL)::int, p_jobs * (v_to = 4)::int,
    p_jobs * (v_to = 5)::int, p_jobs * (v_to = 6)::int);
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
