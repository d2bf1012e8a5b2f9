-- Applies an action to jobs, as `backstop_core::amend` permits: 0 retry, 1 cancel, 2 delete, 3
-- move. Returns a row for each job that it refused: its index from 1 on, why, and the other live
-- job that holds its unique key. With a filter, a job that does not match any more is skipped and
-- gets no row.
--
-- Refusals: 0 not found, 1 running, 2 done, 3 ready, 4 ended, 5 unique key held, 6 filter does not
--   match, 7 alive, 8 queue full, 10 plus the state: not in the expected state.
-- Parameters: ids, action, the queue to move to, the expected state; filter: whether there is one,
--   queue, kind, state, fingerprint; now, how many queues there may be.
CREATE FUNCTION amend(p_ids uuid[], p_action int, p_to text, p_only smallint, p_filtered boolean, p_queue text, p_kind text,
  p_state smallint, p_fingerprint bigint, p_now bigint, p_max_queues int DEFAULT 10000)
RETURNS TABLE (at int, refusal int, twin uuid) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_answer record;
  v_queues int[] := ARRAY(SELECT j.queue FROM job j WHERE j.id = ANY (p_ids)
    UNION SELECT w.queue FROM waiting w WHERE w.id = ANY (p_ids)
    UNION SELECT f.queue FROM finished f WHERE f.id = ANY (p_ids));
  v_names text[];
  v_rooms bigint[];
  v_at int;
  v_full text[];
  v_locked int[];
  v_leases bigint[] := '{}';
  v_new text[] := '{}';
BEGIN
  IF p_action = 3 THEN v_new := new_queues(ARRAY[p_to], p_max_queues); END IF;
  -- Lock the bounds before the queues, in the order of pushes.
  v_names := CASE p_action WHEN 0 THEN ARRAY(SELECT q.name FROM queue q WHERE q.id = ANY (v_queues)) WHEN 3 THEN ARRAY[p_to] ELSE '{}' END;
  v_rooms := rooms(v_names);
  v_full := ARRAY(SELECT u.name FROM unnest(v_names, v_rooms) u(name, room) WHERE u.room <= 0);
  -- Claims take no row lock on jobs. So a call that takes a job out of the ready line locks its
  -- queue, and claims wait.
  v_locked := ARRAY(SELECT q.id FROM queue q WHERE q.id = ANY (v_queues) ORDER BY q.id FOR UPDATE);
  PERFORM 1 FROM lease l WHERE l.no = ANY (ARRAY(SELECT lease_of(j.queue, j.level, j.seq) FROM job j WHERE j.id = ANY (p_ids)))
    ORDER BY l.no + 0 FOR UPDATE;
  PERFORM ticket();
  FOR i IN 1 .. cardinality(p_ids) LOOP
    SELECT * INTO v_answer FROM amend_one(p_ids[i], v_locked, p_action, p_to, p_only, p_filtered, p_queue, p_kind, p_state,
      p_fingerprint, v_full, p_now);
    IF v_answer.lease IS NOT NULL THEN v_leases := v_leases || v_answer.lease; END IF;
    v_at := array_position(v_names, v_answer.enters);
    IF v_at IS NOT NULL THEN
      v_rooms[v_at] := v_rooms[v_at] - 1;
      IF v_rooms[v_at] <= 0 THEN v_full := v_full || v_answer.enters; END IF;
    END IF;
    IF v_answer.refusal IS NOT NULL THEN
      RETURN QUERY SELECT i, v_answer.refusal, v_answer.twin;
    END IF;
  END LOOP;
  -- Delete the emptied leases at once, and not by `close_leases`: it skips every row that a
  -- transaction touched and rolled back, 68,000 of them when it was called for each of 500 jobs. No
  -- other session ends jobs of these leases now, as they are locked; the few that a seizure made
  -- meanwhile are not.
  DELETE FROM lease WHERE no = ANY (ARRAY(
    SELECT l.no FROM lease l WHERE l.no = ANY (v_leases) AND NOT lease_has_jobs(l, false) FOR UPDATE SKIP LOCKED));
  IF v_new <> '{}' THEN PERFORM check_queues(v_new, p_max_queues); END IF;
END $$;

-- Applies the action to one job. `enters`: the queue that gains a live job. `lease`: the lease that
-- loses a job.
CREATE FUNCTION amend_one(p_id uuid, p_locked int[], p_action int, p_to text, p_only smallint, p_filtered boolean, p_queue text,
  p_kind text, p_state smallint, p_fingerprint bigint, p_full text[], p_now bigint,
  OUT refusal int, OUT twin uuid, OUT enters text, OUT lease bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_job job%ROWTYPE;
  v_state smallint;
  v_lease bigint;
  v_fingerprint bigint;
  v_to int;
  v_enters text;
BEGIN
  SELECT * INTO v_job FROM job j WHERE j.id = p_id FOR UPDATE;
  IF FOUND THEN
    v_lease := lease_of(v_job.queue, v_job.level, v_job.seq);
    v_state := CASE WHEN v_lease IS NULL THEN 1 ELSE 2 END;
  ELSE
    SELECT 0, w.no, w.run_at, w.inserted_at, w.queue, w.attempts, w.lost, w.requeues, w.level, w.id, w.kind, w.payload, w.unique_key,
      w.unique_states, w.unique_until, w.retry, w.history, w.settled_lease, w.settled_tag INTO v_job
      FROM waiting w WHERE w.id = p_id FOR UPDATE;
    IF FOUND THEN
      v_state := (SELECT w.state FROM waiting w WHERE w.id = p_id);
    ELSE
      SELECT 0, f.no, f.run_at, f.inserted_at, f.queue, f.attempts, f.lost, f.requeues, f.level, f.id, f.kind, f.payload, f.unique_key,
        f.unique_states, f.unique_until, f.retry, f.history, f.settled_lease, f.settled_tag INTO v_job
        FROM finished f WHERE f.id = p_id FOR UPDATE;
      -- No code writes another state, so the row is damaged; it counts as dead, where an operator
      -- looks.
      SELECT CASE WHEN f.state IN (4, 6) THEN f.state ELSE 5 END, f.fingerprint INTO v_state, v_fingerprint
        FROM finished f WHERE f.id = p_id;
      IF v_state IS NULL THEN
        -- The job may have been promoted between the look-ups: then it is in the ready line now,
        -- and cannot leave it without the lock of its queue.
        SELECT * INTO v_job FROM job j WHERE j.id = p_id FOR UPDATE;
        v_state := CASE WHEN FOUND THEN 1 END;
      END IF;
    END IF;
  END IF;
  -- A job that was enqueued after the queues were locked counts as not found. A job whose queue is
  -- missing can only be deleted.
  refusal := CASE
    WHEN v_state IS NULL THEN 0
    WHEN NOT v_job.queue = ANY (p_locked) AND (p_action <> 2 OR EXISTS (SELECT 1 FROM queue q WHERE q.id = v_job.queue)) THEN 0
    WHEN p_filtered AND (p_kind <> v_job.kind OR p_state <> v_state
      OR (p_fingerprint IS NOT NULL AND p_fingerprint IS DISTINCT FROM v_fingerprint)
      OR p_queue <> (SELECT q.name FROM queue q WHERE q.id = v_job.queue)) THEN 6
    WHEN p_only <> v_state THEN 10 + v_state
    WHEN p_action IN (0, 2) AND v_state = 2 THEN 1
    WHEN p_action = 0 AND v_state = 4 THEN 2
    WHEN p_action = 0 AND v_state = 1 THEN 3
    WHEN p_action = 1 AND v_state >= 4 THEN 4
    WHEN p_action = 3 AND v_state = 4 THEN 2
    WHEN p_action = 3 AND v_state < 4 THEN 7 END;
  IF refusal IS NOT NULL THEN RETURN; END IF;
  -- The rule of `backstop_core::amend::needs_room`.
  IF p_action IN (0, 3) AND v_state >= 4 THEN
    v_enters := CASE p_action WHEN 3 THEN p_to ELSE (SELECT q.name FROM queue q WHERE q.id = v_job.queue) END;
    IF v_enters = ANY (p_full) THEN refusal := 8; RETURN; END IF;
  END IF;
  v_to := CASE WHEN p_action = 3 THEN queue_or_new(p_to) ELSE v_job.queue END;
  IF p_action IN (0, 3) AND v_state >= 4 AND v_job.unique_key IS NOT NULL THEN
    twin := take_key(v_to, v_job.unique_key, p_id, v_job.unique_states, v_job.unique_until, true, p_now);
    IF twin IS NOT NULL THEN refusal := 5; RETURN; END IF;
  END IF;
  enters := v_enters;
  lease := v_lease;
  PERFORM take_out(v_job, v_state, v_lease);
  IF v_to <> v_job.queue THEN
    DELETE FROM key WHERE queue = v_job.queue AND key = v_job.unique_key AND id = p_id;
    PERFORM tell(v_job.queue, v_state, NULL, 1);
    INSERT INTO tally (queue, ready) VALUES (v_to, 1);
  ELSE
    PERFORM tell(v_job.queue, v_state, (ARRAY[1, 6, NULL, 1])[p_action + 1], 1);
  END IF;
  IF p_action IN (0, 3) THEN
    v_job.queue := v_to;
    v_job.run_at := p_now;
    -- A job with a damaged level would never be claimed.
    v_job.level := CASE WHEN v_job.level BETWEEN 0 AND 3 THEN v_job.level ELSE 2 END;
    IF v_state >= 4 THEN
      v_job.attempts := 0;
      v_job.requeues := v_job.requeues + 1;
    END IF;
    PERFORM place(v_job, 1::smallint, NULL, NULL, p_now);
  ELSIF p_action = 1 THEN
    PERFORM place(v_job, 6::smallint, 'operator', NULL, p_now);
  ELSE
    DELETE FROM key WHERE queue = v_job.queue AND key = v_job.unique_key AND id = p_id;
  END IF;
END $$;

-- Removes a job from its table and its place in the ready line. The caller closes its lease.
CREATE FUNCTION take_out(p_job job, p_state smallint, p_lease bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_state IN (1, 2) THEN
    DELETE FROM job WHERE queue = p_job.queue AND level = p_job.level AND seq = p_job.seq;
    IF p_lease IS NULL THEN
      DELETE FROM returned WHERE queue = p_job.queue AND level = p_job.level AND seq = p_job.seq;
    END IF;
  ELSIF p_state IN (0, 3) THEN
    DELETE FROM waiting WHERE id = p_job.id;
  ELSE
    DELETE FROM finished WHERE id = p_job.id;
  END IF;
END $$;

-- The next jobs by arrival that match a filter and that an action could apply to: at most `p_max`,
-- from at most `p_looks` rows. The row without an id says in `next_no` where to go on; NULL is the
-- end.
-- Parameters: the number to start behind; filter: queue, kind, states by bit, fingerprint; how many
--   jobs, how many rows to look at.
CREATE FUNCTION pick(p_after bigint, p_queue text, p_kind text, p_states int, p_fingerprint bigint, p_max int, p_looks int)
RETURNS TABLE (id uuid, next_no bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_row record;
  v_queue int := (SELECT q.id FROM queue q WHERE q.name = p_queue);
  v_looked int := 0;
  v_picked int := 0;
  v_last bigint;
BEGIN
  IF p_queue IS NOT NULL AND v_queue IS NULL THEN RETURN; END IF;
  FOR v_row IN
    SELECT x.* FROM (
      (SELECT j.no, j.id, j.queue, j.kind, NULL::smallint AS state, j.level, j.seq FROM job j
        WHERE j.no > p_after AND p_states & 6 <> 0 AND p_fingerprint IS NULL ORDER BY j.no LIMIT p_looks + 1)
      UNION ALL (SELECT w.no, w.id, w.queue, w.kind, w.state, w.level, 0 FROM waiting w
        WHERE w.no > p_after AND p_states & 9 <> 0 AND p_fingerprint IS NULL ORDER BY w.no LIMIT p_looks + 1)
      UNION ALL (SELECT f.no, f.id, f.queue, f.kind, CASE WHEN f.state IN (4, 6) THEN f.state ELSE 5 END, f.level, 0 FROM finished f
        WHERE f.no > p_after AND p_states & 112 <> 0 AND p_fingerprint IS NULL ORDER BY f.no LIMIT p_looks + 1)
      UNION ALL (SELECT f.no, f.id, f.queue, f.kind, f.state, f.level, 0 FROM finished f
        WHERE f.fingerprint = p_fingerprint AND f.state = 5 AND f.no > p_after AND p_states & 32 <> 0 ORDER BY f.no LIMIT p_looks + 1)) x
    ORDER BY x.no LIMIT p_looks + 1
  LOOP
    IF (v_queue IS NULL OR v_row.queue = v_queue) AND (p_kind IS NULL OR v_row.kind = p_kind)
      AND p_states & (1 << coalesce(v_row.state, CASE WHEN p_states & 6 = 6 THEN 1
        WHEN lease_of(v_row.queue, v_row.level, v_row.seq) IS NULL THEN 1 ELSE 2 END)) <> 0
    THEN
      IF v_picked = p_max THEN
        RETURN QUERY SELECT NULL::uuid, v_last;
        RETURN;
      END IF;
      v_picked := v_picked + 1;
      RETURN QUERY SELECT v_row.id, NULL::bigint;
    END IF;
    IF v_looked = p_looks THEN
      RETURN QUERY SELECT NULL::uuid, v_last;
      RETURN;
    END IF;
    v_looked := v_looked + 1;
    v_last := v_row.no;
  END LOOP;
END $$;
