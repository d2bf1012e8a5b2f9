-- The place a lease gives the right to, if it is the current one.
CREATE FUNCTION leased(p_id uuid, p_queue text, p_number bigint)
RETURNS TABLE (queue int, level smallint, seq bigint, lease bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT j.queue, j.level, j.seq, l.no FROM job j JOIN lease l ON l.number = p_number
  WHERE j.id = p_id AND l.queue = j.queue AND l.level = j.level AND j.seq BETWEEN l.lo AND l.hi
    AND (l.handed IS NULL OR l.handed @> j.seq) AND (l.given_back IS NULL OR NOT j.seq = ANY (l.given_back))
    AND j.queue = (SELECT q.id FROM queue q WHERE q.name = p_queue);
END $$;

-- Whether a settlement was accepted before, and nothing after it.
CREATE FUNCTION is_settled(p_id uuid, p_number bigint, p_tag smallint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM job j WHERE j.id = p_id AND j.settled_lease = p_number AND j.settled_tag = p_tag)
    OR EXISTS (SELECT 1 FROM waiting w WHERE w.id = p_id AND w.settled_lease = p_number AND w.settled_tag = p_tag)
    OR EXISTS (SELECT 1 FROM finished f WHERE f.id = p_id AND f.settled_lease = p_number AND f.settled_tag = p_tag);
END $$;

-- Notes that jobs left a lease; a lease that holds nothing is gone.
CREATE FUNCTION leave_lease(p_lease bigint, p_jobs int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM lease WHERE no = p_lease AND live <= p_jobs;
  IF NOT FOUND THEN UPDATE lease SET live = live - p_jobs WHERE no = p_lease; END IF;
END $$;

-- Ends runs that succeeded and stay listed, all at once: the common end. Answers which ones were stale, by number from 1 on.
-- A handler of a job rarely settles alone: the leases are locked first, in order, so that a seizer waits or is waited for.
-- per run: id, queue, lease; then tag and now
CREATE FUNCTION settle_done(p_ids uuid[], p_queues text[], p_numbers bigint[], p_tag smallint, p_now bigint)
RETURNS TABLE (stale int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_ended uuid[];
BEGIN
  PERFORM 1 FROM lease l WHERE l.number = ANY (p_numbers) ORDER BY l.no FOR UPDATE;
  WITH run AS (
    SELECT j.ctid AS at, l.no AS lease, u.number FROM unnest(p_ids, p_queues, p_numbers) u(id, queue, number)
    JOIN job j ON j.id = u.id
    JOIN lease l ON l.number = u.number AND l.queue = j.queue AND l.level = j.level AND j.seq BETWEEN l.lo AND l.hi
    WHERE (l.handed IS NULL OR l.handed @> j.seq) AND (l.given_back IS NULL OR NOT j.seq = ANY (l.given_back))
      AND j.queue = (SELECT q.id FROM queue q WHERE q.name = u.queue)
  ), ended AS (
    DELETE FROM job j USING run r WHERE j.ctid = r.at
    RETURNING j.*, r.lease, r.number
  ), kept AS (
    INSERT INTO finished (finished_at, no, run_at, inserted_at, queue, attempts, lost, requeues, level, state, id, kind, payload,
      unique_key, unique_states, unique_until, retry, history, settled_lease, settled_tag)
    SELECT p_now, no, run_at, inserted_at, queue, attempts + 1, lost, requeues, level, 4, id, kind, payload,
      unique_key, unique_states, unique_until, retry, history, number, p_tag FROM ended
  ), told AS (
    INSERT INTO tally (queue, running, done, total_done) SELECT queue, -count(*), count(*), count(*) FROM ended GROUP BY queue
  ), counted AS (
    SELECT lease, count(*)::int AS jobs FROM ended GROUP BY lease
  ), closed AS (
    DELETE FROM lease l USING counted c WHERE l.no = c.lease AND l.live <= c.jobs
  ), left_open AS (
    UPDATE lease l SET live = l.live - c.jobs FROM counted c WHERE l.no = c.lease AND l.live > c.jobs
  ) SELECT array_agg(id) INTO v_ended FROM ended;
  IF coalesce(cardinality(v_ended), 0) < cardinality(p_ids) THEN
    RETURN QUERY SELECT o::int FROM unnest(p_ids, p_numbers) WITH ORDINALITY u(id, number, o)
      WHERE (v_ended IS NULL OR NOT id IN (SELECT unnest(v_ended))) AND NOT is_settled(id, number, p_tag);
  END IF;
END $$;

-- Ends one run as `backstop_core::verdict::Transition` says; answers whether its lease was current, or the very same was
-- settled before. The lease must be locked.
CREATE FUNCTION settle_one(p_id uuid, p_queue text, p_number bigint, p_tag smallint, p_state smallint, p_attempts int, p_lost int,
  p_former boolean, p_run_at bigint, p_reason text, p_rewrite boolean, p_history bytea, p_gone boolean, p_now bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_run record;
  v_job job%ROWTYPE;
BEGIN
  SELECT * INTO v_run FROM leased(p_id, p_queue, p_number);
  IF NOT FOUND THEN RETURN is_settled(p_id, p_number, p_tag); END IF;
  IF p_state = 1 AND p_former THEN
    UPDATE job SET attempts = attempts + p_attempts, lost = lost + p_lost, run_at = coalesce(p_run_at, run_at),
      history = CASE WHEN p_rewrite THEN p_history ELSE history END, settled_lease = p_number, settled_tag = p_tag
    WHERE queue = v_run.queue AND level = v_run.level AND seq = v_run.seq;
    UPDATE lease SET given_back = given_back || v_run.seq WHERE no = v_run.lease;
    INSERT INTO returned (queue, level, seq) VALUES (v_run.queue, v_run.level, v_run.seq);
  ELSE
    DELETE FROM job WHERE queue = v_run.queue AND level = v_run.level AND seq = v_run.seq RETURNING * INTO v_job;
    v_job.attempts := v_job.attempts + p_attempts;
    v_job.lost := v_job.lost + p_lost;
    v_job.run_at := coalesce(p_run_at, v_job.run_at);
    v_job.history := CASE WHEN p_rewrite THEN p_history ELSE v_job.history END;
    v_job.settled_lease := p_number;
    v_job.settled_tag := p_tag;
    IF p_gone THEN
      PERFORM leave_key(v_job.queue, v_job.unique_key, p_id, v_job.unique_states, v_job.unique_until, p_state, p_now);
    ELSE
      PERFORM place(v_job, p_state, p_reason, p_now);
    END IF;
  END IF;
  PERFORM leave_lease(v_run.lease, 1);
  PERFORM tell(v_run.queue, 2, p_state, 1);
  IF p_gone THEN
    INSERT INTO tally (queue, done) VALUES (v_run.queue, -1);
  END IF;
  RETURN true;
END $$;

-- Puts a job that is in no table where a state belongs; ready is the tail of the line.
CREATE FUNCTION place(p_job job, p_state smallint, p_reason text, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_state = 1 THEN
    PERFORM ticket();
    p_job.seq := nextval('line');
    INSERT INTO job SELECT p_job.*;
  ELSIF p_state IN (0, 3) THEN
    INSERT INTO waiting (run_at, no, inserted_at, queue, attempts, lost, requeues, level, state, id, kind, payload, unique_key,
      unique_states, unique_until, retry, history, settled_lease, settled_tag)
    VALUES (p_job.run_at, p_job.no, p_job.inserted_at, p_job.queue, p_job.attempts, p_job.lost, p_job.requeues, p_job.level, p_state,
      p_job.id, p_job.kind, p_job.payload, p_job.unique_key, p_job.unique_states, p_job.unique_until, p_job.retry, p_job.history,
      p_job.settled_lease, p_job.settled_tag);
  ELSE
    INSERT INTO finished (finished_at, no, run_at, inserted_at, queue, attempts, lost, requeues, level, state, id, kind, payload,
      reason, unique_key, unique_states, unique_until, retry, history, settled_lease, settled_tag)
    VALUES (p_now, p_job.no, p_job.run_at, p_job.inserted_at, p_job.queue, p_job.attempts, p_job.lost, p_job.requeues, p_job.level,
      p_state, p_job.id, p_job.kind, p_job.payload, p_reason, p_job.unique_key, p_job.unique_states, p_job.unique_until, p_job.retry,
      p_job.history, p_job.settled_lease, p_job.settled_tag);
  END IF;
END $$;

-- Ends runs: first those that are done, then the others, one by one. Answers which ones were stale: those done by number from
-- 1 on, the others by number from -1 down.
-- per run that is done: id, queue, lease; their tag; per other run: id, queue, lease, tag, state, attempts more, lost leases more,
-- whether it returns to its former place, time, reason, whether its history is rewritten, history, whether it is gone at once
CREATE FUNCTION settle(p_done_ids uuid[], p_done_queues text[], p_done_numbers bigint[], p_done_tag smallint, p_ids uuid[],
  p_queues text[], p_numbers bigint[], p_tags smallint[], p_states smallint[], p_attempts int[], p_lost int[], p_former boolean[],
  p_run_ats bigint[], p_reasons text[], p_rewrite boolean[], p_histories bytea[], p_gone boolean[], p_now bigint)
RETURNS TABLE (stale int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF cardinality(p_done_ids) > 0 THEN
    IF cardinality(p_ids) > 0 THEN
      PERFORM 1 FROM lease l WHERE l.number = ANY (p_done_numbers || p_numbers) ORDER BY l.no FOR UPDATE;
    END IF;
    RETURN QUERY SELECT s.stale FROM settle_done(p_done_ids, p_done_queues, p_done_numbers, p_done_tag, p_now) s;
  ELSE
    PERFORM 1 FROM lease l WHERE l.number = ANY (p_numbers) ORDER BY l.no FOR UPDATE;
  END IF;
  FOR i IN 1 .. cardinality(p_ids) LOOP
    IF NOT settle_one(p_ids[i], p_queues[i], p_numbers[i], p_tags[i], p_states[i], p_attempts[i], p_lost[i], p_former[i],
      p_run_ats[i], p_reasons[i], p_rewrite[i], p_histories[i], p_gone[i], p_now) THEN
      stale := -i;
      RETURN NEXT;
    END IF;
  END LOOP;
END $$;
