-- Counts jobs that go from one state to another; NULL stands for outside of the queue. The totals
-- of ended jobs only ever grow.
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

-- Where to look for changes of counts that are not added up yet. A transaction gets its xid before
-- it commits. So the rows of transactions that were open at the last adding up are found by their
-- xid (`p_pending`), and all other rows from the highest xid of that time on. This way no query
-- walks over the dead tuples of rows that were added up, however long a transaction keeps them. If
-- that xid is ahead of the server's own, the tables were copied from another server: then all rows
-- are read.
CREATE FUNCTION tallied_from(p_streams boolean, OUT p_step bigint, OUT p_xid xid8, OUT p_pending xid8[]) LANGUAGE plpgsql AS $$
BEGIN
  SELECT a.step, a.xid, a.pending INTO p_step, p_xid, p_pending FROM added a WHERE a.streams = p_streams ORDER BY a.step DESC LIMIT 1;
  IF p_xid > pg_snapshot_xmax(pg_current_snapshot()) THEN
    p_xid := '0';
    p_pending := '{}';
  END IF;
END $$;

-- Notes that all rows below `p_xid` are added up that the snapshot could see. Later rows of this
-- transaction are not: its own xid is among the pending ones.
CREATE FUNCTION added_to(p_streams boolean, p_step bigint, p_xid xid8, p_snapshot pg_snapshot) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO added (step, streams, xid, pending) VALUES (p_step + 1, p_streams, p_xid,
    ARRAY(SELECT x FROM pg_snapshot_xip(p_snapshot) x WHERE x < p_xid UNION SELECT pg_current_xact_id()));
  DELETE FROM added a WHERE a.streams = p_streams AND a.step = p_step;
END $$;

-- The changes that are not added up yet.
CREATE FUNCTION tallied(p_xid xid8, p_pending xid8[]) RETURNS SETOF tally LANGUAGE sql STABLE AS $$
  SELECT * FROM tally WHERE xid >= p_xid UNION ALL SELECT * FROM tally WHERE xid = ANY (p_pending) AND xid < p_xid
$$;

-- Adds the changes of counts to `total`: at most `p_max` rows, and the rows of transactions that
-- were pending. One session at a time does this, and the others go on without.
CREATE FUNCTION add_up(p_max int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_from record;
  v_snapshot pg_snapshot;
  v_late tid[];
  v_rows tid[];
  v_xid xid8;
BEGIN
  IF NOT pg_try_advisory_xact_lock(((ticket_tag() + 1)::bigint << 48) - 3) THEN RETURN; END IF;
  SELECT * INTO v_from FROM tallied_from(false);
  -- Take the snapshot before reading the rows. If a transaction commits in between, the next call
  -- looks for its rows again and finds none.
  v_snapshot := pg_current_snapshot();
  v_late := ARRAY(SELECT t.ctid FROM tally t WHERE t.xid = ANY (v_from.p_pending) AND t.xid < v_from.p_xid);
  SELECT array_agg(t.ctid), (array_agg(t.xid ORDER BY t.xid DESC))[1] INTO v_rows, v_xid
    FROM (SELECT t.ctid, t.xid FROM tally t WHERE t.xid >= v_from.p_xid ORDER BY t.xid LIMIT p_max) t;
  IF v_rows IS NULL AND cardinality(v_late) = 0 THEN RETURN; END IF;
  IF coalesce(cardinality(v_rows), 0) < p_max THEN v_xid := pg_snapshot_xmax(v_snapshot); END IF;
  WITH told AS (
    DELETE FROM tally WHERE ctid = ANY (v_late || v_rows) RETURNING *
  ), more AS (
    SELECT queue, sum(scheduled) AS scheduled, sum(ready) AS ready, sum(running) AS running, sum(retrying) AS retrying,
      sum(done) AS done, sum(dead) AS dead, sum(cancelled) AS cancelled, sum(total_enqueued) AS total_enqueued,
      sum(total_done) AS total_done, sum(total_dead) AS total_dead, sum(total_cancelled) AS total_cancelled
    FROM told GROUP BY queue
  ), placed AS (
    INSERT INTO total (queue, step, scheduled, ready, running, retrying, done, dead, cancelled, total_enqueued, total_done, total_dead,
      total_cancelled)
    SELECT m.queue, coalesce(t.step, 0) + 1, coalesce(t.scheduled, 0) + m.scheduled, coalesce(t.ready, 0) + m.ready,
      coalesce(t.running, 0) + m.running, coalesce(t.retrying, 0) + m.retrying, coalesce(t.done, 0) + m.done,
      coalesce(t.dead, 0) + m.dead, coalesce(t.cancelled, 0) + m.cancelled, coalesce(t.total_enqueued, 0) + m.total_enqueued,
      coalesce(t.total_done, 0) + m.total_done, coalesce(t.total_dead, 0) + m.total_dead,
      coalesce(t.total_cancelled, 0) + m.total_cancelled
    FROM more m LEFT JOIN LATERAL (SELECT * FROM total t WHERE t.queue = m.queue ORDER BY t.step DESC LIMIT 1) t ON true
    RETURNING queue, step
  ) DELETE FROM total t USING placed p WHERE t.queue = ANY (ARRAY[p.queue]) AND t.step = p.step - 1;
  PERFORM added_to(false, v_from.p_step, v_xid, v_snapshot);
END $$;
