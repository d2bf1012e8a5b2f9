-- All queues by name, with their counts and bounds, and when the job that is claimed next was due
-- to run.
CREATE FUNCTION queues()
RETURNS TABLE (name text, paused boolean, counts bigint[], totals bigint[], next_ready bigint, max_size bigint, overflow text,
  dead_max bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_from record;
BEGIN
  SELECT * INTO v_from FROM tallied_from(false);
  -- One statement reads `total` and `tally`: counts that are added up meanwhile are in exactly one
  -- of the two.
  RETURN QUERY
  WITH told AS (
    SELECT t.queue, sum(scheduled) AS scheduled, sum(ready) AS ready, sum(running) AS running, sum(retrying) AS retrying,
      sum(done) AS done, sum(dead) AS dead, sum(cancelled) AS cancelled, sum(total_enqueued) AS total_enqueued,
      sum(total_done) AS total_done, sum(total_dead) AS total_dead, sum(total_cancelled) AS total_cancelled
    FROM (
      SELECT t.queue, scheduled, ready, running, retrying, done, dead, cancelled, total_enqueued, total_done, total_dead, total_cancelled
        FROM queue q CROSS JOIN LATERAL (SELECT * FROM total t WHERE t.queue = q.id ORDER BY t.step DESC LIMIT 1) t
      UNION ALL
      SELECT t.queue, scheduled, ready, running, retrying, done, dead, cancelled, total_enqueued, total_done, total_dead, total_cancelled
        FROM tallied(v_from.p_xid, v_from.p_pending) t) t GROUP BY t.queue
  )
  SELECT q.name, q.paused, ARRAY[t.scheduled, t.ready, t.running, t.retrying, t.done, t.dead, t.cancelled]::bigint[],
    ARRAY[t.total_enqueued, t.total_done, t.total_dead, t.total_cancelled]::bigint[],
    CASE WHEN t.ready > 0 THEN next_ready(q.id) END,
    q.max_size, q.overflow, q.dead_max
  FROM queue q JOIN told t ON t.queue = q.id ORDER BY q.name;
END $$;

CREATE FUNCTION next_ready(p_queue int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_reached reached%ROWTYPE;
  v_run_at bigint;
BEGIN
  SELECT * INTO v_reached FROM reached c WHERE c.queue = p_queue ORDER BY c.step DESC LIMIT 1;
  FOR v_level IN 0 .. 3 LOOP
    SELECT j.run_at INTO v_run_at FROM job j WHERE j.queue = p_queue AND j.level = v_level
      AND j.seq = (SELECT r.seq FROM returned r WHERE r.queue = p_queue AND r.level = v_level AND r.seq >= v_reached.low[v_level + 1]
        ORDER BY r.seq LIMIT 1);
    IF NOT FOUND THEN
      SELECT j.run_at INTO v_run_at FROM job j WHERE j.queue = p_queue AND j.level = v_level AND j.seq > v_reached.at[v_level + 1]
        ORDER BY j.seq LIMIT 1;
    END IF;
    IF FOUND THEN RETURN v_run_at; END IF;
  END LOOP;
  RETURN NULL;
END $$;

-- Resumes or pauses a queue; makes the queue if there is none.
CREATE FUNCTION set_gate(p_queue text, p_paused boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM queue_or_new(p_queue);
  UPDATE queue SET paused = p_paused WHERE name = p_queue AND paused <> p_paused;
END $$;

-- Sets the bounds of a queue; makes the queue if there is none.
CREATE FUNCTION set_bounds(p_queue text, p_max_size bigint, p_overflow text, p_dead_max bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM queue_or_new(p_queue);
  UPDATE queue SET max_size = p_max_size, overflow = p_overflow, dead_max = p_dead_max, configured = true WHERE name = p_queue;
END $$;

-- Marks queues as configured; makes those that do not exist.
CREATE FUNCTION declare_queues(p_names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_name text;
BEGIN
  -- All sessions lock in the same order, so that they cannot deadlock.
  FOR v_name IN SELECT DISTINCT n FROM unnest(p_names) n ORDER BY n LOOP
    PERFORM queue_or_new(v_name);
    UPDATE queue SET configured = true WHERE name = v_name AND NOT configured;
  END LOOP;
END $$;

-- The workers with a heartbeat since `p_since`, by name, and how many jobs each is running.
CREATE FUNCTION workers(p_since bigint) RETURNS TABLE (name text, queues text, seen_at bigint, running bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  -- Count the jobs of all leases once, and not once for each worker.
  RETURN QUERY
  WITH held AS MATERIALIZED (
    SELECT l.worker, count(*) AS jobs FROM lease l CROSS JOIN LATERAL (
      SELECT j.seq FROM job j WHERE j.queue = l.queue AND j.level = l.level AND j.seq BETWEEN l.lo AND l.hi OFFSET 0) j
    WHERE (l.handed IS NULL OR l.handed @> j.seq) AND (l.given_back IS NULL OR NOT j.seq = ANY (l.given_back)) GROUP BY l.worker
  )
  SELECT w.name, w.queues, w.seen_at, coalesce((SELECT h.jobs FROM held h WHERE h.worker = w.name), 0)
    FROM (SELECT * FROM worker w WHERE w.seen_at >= p_since OFFSET 0) w ORDER BY w.name;
END $$;

-- The queues by name; with `p_name`, only the queue of that name.
CREATE FUNCTION queue_ids(p_name text) RETURNS TABLE (id int, name text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT q.id, q.name FROM queue q WHERE p_name IS NULL OR q.name = p_name ORDER BY q.name;
END $$;

-- How many leases expired before a time, and when the first did.
-- Parameters: the time, how many leases to count at most.
CREATE FUNCTION expired_leases(p_before bigint, p_max int) RETURNS TABLE (leases bigint, first bigint) LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT count(*), min(l.until)
    FROM (SELECT l.until FROM lease l WHERE l.until < p_before ORDER BY l.until LIMIT p_max) l;
END $$;

-- The queues behind a name, in order; at most `p_max`.
CREATE FUNCTION queues_after(p_name text, p_max int) RETURNS TABLE (id int, name text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT q.id, q.name FROM queue q WHERE q.name > p_name ORDER BY q.name LIMIT p_max;
END $$;

-- The queues with ready or running jobs, from a name on, in order; at most `p_max`.
CREATE FUNCTION queues_in_line(p_name text, p_max int) RETURNS TABLE (id int, name text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT q.id, q.name FROM queue q WHERE q.name >= p_name
    AND (SELECT j.seq FROM job j WHERE j.queue = q.id ORDER BY j.level, j.seq LIMIT 1) IS NOT NULL ORDER BY q.name LIMIT p_max;
END $$;
