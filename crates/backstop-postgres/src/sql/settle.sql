-- The runs that these leases may end, if they are the current leases of their jobs: the index from
-- 1 on, the ctid of the job's row, its place in the ready line, and the lease. A job is looked up
-- by its id and a lease by its number, each by itself: left a choice, and without statistics, the
-- planner walked all jobs of a lease for each of them, at 380 ms for 1,000 runs instead of 20.
-- Parameters, per lease: id of the job, queue, lease number.
CREATE FUNCTION current_runs(p_ids uuid[], p_queues text[], p_numbers bigint[])
RETURNS TABLE (at int, tid tid, queue int, level smallint, seq bigint, lease bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT u.o::int, j.ctid, j.queue, j.level, j.seq, l.no
  FROM unnest(p_ids, p_queues, p_numbers) WITH ORDINALITY u(id, queue, number, o)
  CROSS JOIN LATERAL (SELECT j.ctid, j.queue, j.level, j.seq FROM job j WHERE j.id = u.id OFFSET 0) j
  CROSS JOIN LATERAL (SELECT l.no FROM lease l WHERE l.number = u.number AND l.queue + 0 = j.queue AND l.level + 0 = j.level
    AND j.seq BETWEEN l.lo AND l.hi + 0 AND (l.handed IS NULL OR l.handed @> j.seq)
    AND (l.given_back IS NULL OR NOT j.seq = ANY (l.given_back)) OFFSET 0) l
  WHERE j.queue = (SELECT q.id FROM queue q WHERE q.name = u.queue);
END $$;

-- Whether this settlement was the last one that the job accepted; with a NULL tag, whichever
-- settlement under the lease it was. A job that was moved since has left the queue of the lease.
CREATE FUNCTION is_settled(p_id uuid, p_queue text, p_number bigint, p_tag smallint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_queue int := (SELECT q.id FROM queue q WHERE q.name = p_queue);
BEGIN
  RETURN EXISTS (SELECT 1 FROM job j WHERE j.id = p_id AND j.queue + 0 = v_queue AND j.settled_lease = p_number
      AND (p_tag IS NULL OR j.settled_tag = p_tag))
    OR EXISTS (SELECT 1 FROM waiting w WHERE w.id = p_id AND w.queue = v_queue AND w.settled_lease = p_number
      AND (p_tag IS NULL OR w.settled_tag = p_tag))
    OR EXISTS (SELECT 1 FROM finished f WHERE f.id = p_id AND f.queue + 0 = v_queue AND f.settled_lease = p_number
      AND (p_tag IS NULL OR f.settled_tag = p_tag));
END $$;

-- Whether a lease has jobs; with `p_at_rest`, only jobs count that no other transaction deletes or
-- locks at this moment. The scan starts at the last place: runs end about in order, so a scan from
-- the first place would walk over the dead tuples of all that have ended.
CREATE FUNCTION lease_has_jobs(p_lease lease, p_at_rest boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT j.seq FROM job j WHERE j.queue = p_lease.queue AND j.level = p_lease.level AND j.seq BETWEEN p_lease.lo AND p_lease.hi
      AND (p_lease.handed IS NULL OR p_lease.handed @> j.seq) AND (p_lease.given_back IS NULL OR NOT j.seq = ANY (p_lease.given_back))
      AND (NOT p_at_rest OR j.xmax = 0)
    ORDER BY j.seq DESC LIMIT 1) IS NOT NULL;
END $$;

-- Removes those of these leases that have no jobs. Returns those that may have none once other
-- transactions have ended: all their jobs are being ended, or another session has the lease locked.
-- If settlements overlap, maybe none of them sees that it is the last one. But at least one of them
-- gets its lease returned, since each ends its jobs before it looks. Its caller calls
-- `close_emptied` after the commit. Waiting here instead would be a deadlock: each of them has the
-- lease locked.
CREATE FUNCTION close_leases(p_leases bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  v_last bigint[] := ARRAY(SELECT l.no FROM lease l WHERE l.no = ANY (p_leases) AND NOT lease_has_jobs(l, true));
  v_closed bigint[];
BEGIN
  IF v_last = '{}' THEN RETURN v_last; END IF;
  WITH closed AS (
    DELETE FROM lease WHERE no = ANY (ARRAY(
      SELECT l.no FROM lease l WHERE l.no = ANY (v_last) AND NOT lease_has_jobs(l, false) FOR UPDATE SKIP LOCKED))
    RETURNING no
  ) SELECT coalesce(array_agg(no), '{}') INTO v_closed FROM closed;
  RETURN ARRAY(SELECT u.no FROM unnest(v_last) u(no) WHERE NOT u.no = ANY (v_closed));
END $$;

-- Removes those of these leases that have no jobs, after the transactions that have them locked
-- have ended. Returns the removed ones. A lease that stays locked is skipped: without jobs, it
-- stays until it expires, and a worker that seizes expired leases removes it.
CREATE FUNCTION close_emptied(p_leases bigint[]) RETURNS TABLE (closed bigint) LANGUAGE plpgsql AS $$
DECLARE
  v_no bigint;
  v_lease lease%ROWTYPE;
BEGIN
  -- The settlement is committed, so this step should not make the caller wait long.
  PERFORM set_config('lock_timeout', '1s', true);
  FOR v_no IN SELECT u.no FROM unnest(p_leases) u(no) ORDER BY u.no LOOP
    BEGIN
      -- If another session has this advisory lock, it has not locked the lease yet, and so will see
      -- what is committed by now. The lock key must differ from those of other schemas and of the
      -- application: if a foreign lock made this loop skip the lease, the lease would stay.
      CONTINUE WHEN NOT pg_try_advisory_xact_lock(ticket_tag() + 8192, (v_no & 2147483647)::int);
      SELECT * INTO v_lease FROM lease l WHERE l.no = v_no FOR UPDATE;
      CONTINUE WHEN NOT FOUND OR lease_has_jobs(v_lease, false);
      DELETE FROM lease l WHERE l.no = v_no;
    EXCEPTION WHEN lock_not_available THEN
      -- The caller waits two seconds for all leases together.
      PERFORM set_config('lock_timeout', '10ms', true);
      CONTINUE;
    END;
    closed := v_no;
    RETURN NEXT;
  END LOOP;
END $$;

-- Settles successful runs of one claim, all at once: the common case. Returns which ones were
-- stale, by index from 1 on. The caller must have locked the leases.
-- Parameters: lease number, queue; per run: id; the settlement tag of all, whether the jobs stay
--   listed, now.
CREATE FUNCTION settle_done(p_number bigint, p_queue text, p_ids uuid[], p_tag smallint, p_keep boolean, p_now bigint)
RETURNS TABLE (stale int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_lease record;
  v_ended int;
  v_gone uuid[];
  v_freed int;
BEGIN
  SELECT l.*, count(*) OVER () AS leases INTO v_lease FROM lease l
    WHERE l.number = p_number AND l.queue + 0 = (SELECT q.id FROM queue q WHERE q.name = p_queue);
  IF v_lease.leases > 1 THEN
    RETURN QUERY SELECT s.stale FROM settle_spread(p_number, p_queue, p_ids, p_tag, p_keep, p_now) s;
    RETURN;
  END IF;
  IF v_lease.leases = 1 AND p_keep THEN
    -- Delete by id, in the order of the ids, which is that of all indexes of `finished`. The sums
    -- keep the planner from walking the lease instead. With job and lease looked up for each run,
    -- and joined to the rows again, a drained job took about 16 us of the server instead of 14, on
    -- a busy machine and together with a CHECK on `finished.state`.
    WITH ended AS (
      DELETE FROM job j WHERE j.id = ANY (p_ids) AND j.queue + 0 = v_lease.queue AND j.level + 0 = v_lease.level
        AND j.seq + 0 BETWEEN v_lease.lo AND v_lease.hi AND (v_lease.handed IS NULL OR v_lease.handed @> j.seq)
        AND (v_lease.given_back IS NULL OR NOT j.seq = ANY (v_lease.given_back)) RETURNING j.*
    ) INSERT INTO finished (finished_at, no, run_at, inserted_at, queue, attempts, lost, requeues, level, state, id, kind, payload,
        unique_key, unique_states, unique_until, retry, history, settled_lease, settled_tag)
      SELECT p_now, no, run_at, inserted_at, queue, attempts + 1, lost, requeues, level, 4, id, kind, payload,
        unique_key, unique_states, unique_until, retry, history, p_number, p_tag FROM ended;
    GET DIAGNOSTICS v_ended = ROW_COUNT;
  ELSIF v_lease.leases = 1 THEN
    WITH ended AS (
      DELETE FROM job j WHERE j.id = ANY (p_ids) AND j.queue + 0 = v_lease.queue AND j.level + 0 = v_lease.level
        AND j.seq + 0 BETWEEN v_lease.lo AND v_lease.hi AND (v_lease.handed IS NULL OR v_lease.handed @> j.seq)
        AND (v_lease.given_back IS NULL OR NOT j.seq = ANY (v_lease.given_back))
      RETURNING j.id, j.unique_key, j.unique_states, j.unique_until
    ) SELECT array_agg(id), count(leave_key(v_lease.queue, unique_key, id, unique_states, unique_until, 4::smallint, p_now))
        FILTER (WHERE unique_key IS NOT NULL) INTO v_gone, v_freed FROM ended;
    v_ended := coalesce(cardinality(v_gone), 0);
  END IF;
  IF v_ended > 0 THEN
    INSERT INTO tally (queue, running, done, total_done)
      VALUES (v_lease.queue, -v_ended, CASE WHEN p_keep THEN v_ended ELSE 0 END, v_ended);
  END IF;
  IF v_ended IS DISTINCT FROM cardinality(p_ids) THEN
    -- Runs that this call has ended are not stale, even if they left no row in `finished`.
    RETURN QUERY SELECT o::int FROM unnest(p_ids) WITH ORDINALITY u(id, o)
      WHERE (v_gone IS NULL OR NOT id IN (SELECT unnest(v_gone))) AND NOT is_settled(id, p_queue, p_number, p_tag);
  END IF;
END $$;

-- The same for a claim that is spread over several leases.
CREATE FUNCTION settle_spread(p_number bigint, p_queue text, p_ids uuid[], p_tag smallint, p_keep boolean, p_now bigint)
RETURNS TABLE (stale int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_runs int := cardinality(p_ids);
  v_ended int[];
BEGIN
  WITH ended AS (
    DELETE FROM job j USING current_runs(p_ids, array_fill(p_queue, ARRAY[v_runs]), array_fill(p_number, ARRAY[v_runs])) r
    WHERE j.ctid = r.tid RETURNING j.*, r.at
  ), kept AS (
    INSERT INTO finished (finished_at, no, run_at, inserted_at, queue, attempts, lost, requeues, level, state, id, kind, payload,
      unique_key, unique_states, unique_until, retry, history, settled_lease, settled_tag)
    SELECT p_now, no, run_at, inserted_at, queue, attempts + 1, lost, requeues, level, 4, id, kind, payload,
      unique_key, unique_states, unique_until, retry, history, p_number, p_tag FROM ended WHERE p_keep
  ), told AS (
    INSERT INTO tally (queue, running, done, total_done)
    SELECT queue, -count(*), CASE WHEN p_keep THEN count(*) ELSE 0 END, count(*) FROM ended GROUP BY queue
  ), freed AS MATERIALIZED (
    SELECT leave_key(queue, unique_key, id, unique_states, unique_until, 4::smallint, p_now) FROM ended
    WHERE unique_key IS NOT NULL AND NOT p_keep
  ) SELECT array_agg(at) INTO v_ended FROM ended WHERE (SELECT count(*) FROM freed) >= 0;
  IF coalesce(cardinality(v_ended), 0) < v_runs THEN
    RETURN QUERY SELECT o::int FROM unnest(p_ids) WITH ORDINALITY u(id, o)
      WHERE (v_ended IS NULL OR NOT o IN (SELECT unnest(v_ended))) AND NOT is_settled(id, p_queue, p_number, p_tag);
  END IF;
END $$;

-- Puts places back into the ready line, where claims find them before those behind the cursor. The
-- caller must have locked their queues.
-- Parameters, per place: the lease that covered it, the place.
CREATE FUNCTION give_back(p_leases bigint[], p_seqs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_back record;
  v_reached reached%ROWTYPE;
BEGIN
  FOR v_back IN WITH back AS (
      INSERT INTO returned (queue, level, seq)
        SELECT l.queue, l.level, u.seq FROM unnest(p_leases, p_seqs) u(lease, seq)
        CROSS JOIN LATERAL (SELECT l.queue, l.level FROM lease l WHERE l.no = u.lease OFFSET 0) l
      RETURNING queue, level, seq
    ) SELECT queue, level, min(seq) AS low FROM back GROUP BY queue, level
  LOOP
    SELECT * INTO v_reached FROM reached c WHERE c.queue = v_back.queue ORDER BY c.step DESC LIMIT 1;
    IF v_back.low < v_reached.low[v_back.level + 1] THEN
      v_reached.low[v_back.level + 1] := v_back.low;
      PERFORM reach(v_reached);
    END IF;
  END LOOP;
END $$;

-- Inserts a job that is in no table into the table of its state. A ready job goes to the end of the
-- ready line.
CREATE FUNCTION place(p_job job, p_state smallint, p_reason text, p_fingerprint bigint, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
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
      reason, fingerprint, unique_key, unique_states, unique_until, retry, history, settled_lease, settled_tag)
    VALUES (p_now, p_job.no, p_job.run_at, p_job.inserted_at, p_job.queue, p_job.attempts, p_job.lost, p_job.requeues, p_job.level,
      p_state, p_job.id, p_job.kind, p_job.payload, p_reason, p_fingerprint, p_job.unique_key, p_job.unique_states, p_job.unique_until,
      p_job.retry, p_job.history, p_job.settled_lease, p_job.settled_tag);
  END IF;
END $$;

-- Settles runs, none of them named twice: first those that are done, then the others, one by one as
-- `backstop_core::verdict::JobTransition` says. Returns the runs that were not ended: done runs by
-- index from 1 on, other runs by index from -1 down. `is_full` says that the queue has no room for
-- another dead job; otherwise the run was stale. A row with a lease belongs to no run:
-- `close_emptied` has to close that lease after the commit.
-- Parameters: per done run, claim by claim: id; per claim: where its ids end, queue, lease number;
--   the tag of done runs, whether done jobs stay listed; per other run: id, queue, lease number,
--   tag, state, attempts to add, whether earlier attempts no longer count, lost leases to add,
--   whether it returns to its former place, time, reason, fingerprint, whether its history is
--   rewritten, history, whether it is removed at once; now.
CREATE FUNCTION settle(p_done_ids uuid[], p_done_ends int[], p_done_queues text[], p_done_numbers bigint[], p_done_tag smallint,
  p_done_keep boolean,
  p_ids uuid[], p_queues text[], p_numbers bigint[], p_tags smallint[], p_states smallint[], p_attempts int[],
  p_anew boolean[], p_lost int[], p_former boolean[], p_run_ats bigint[], p_reasons text[], p_fingerprints bigint[], p_rewrite boolean[],
  p_histories bytea[], p_gone boolean[], p_now bigint)
RETURNS TABLE (at int, is_full boolean, lease bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_run record;
  v_job job%ROWTYPE;
  v_ended int[] := '{}';
  v_ended_in int[] := '{}';
  v_leases bigint[];
  v_back bigint[] := '{}';
  v_back_of bigint[] := '{}';
  v_full int[] := '{}';
  v_queues int[];
  v_rooms bigint[] := '{}';
  v_from int := 0;
BEGIN
  -- All sessions lock in the same order, so that they cannot deadlock. Several calls may settle
  -- runs of one lease at the same time; a worker that seizes expired leases skips a lease that is
  -- being settled. Only a call that gives jobs back changes the lease and the cursor of the queue.
  IF true = ANY (p_former) THEN
    PERFORM 1 FROM queue q WHERE q.name IN (SELECT u.queue FROM unnest(p_queues, p_states, p_former) u(queue, state, former)
      WHERE u.state = 1 AND u.former) ORDER BY q.id FOR UPDATE;
    v_leases := ARRAY(SELECT l.no FROM lease l WHERE l.number = ANY (p_done_numbers || p_numbers) ORDER BY l.no + 0 FOR UPDATE);
  ELSE
    v_leases := ARRAY(SELECT l.no FROM lease l WHERE l.number = ANY (p_done_numbers || p_numbers) ORDER BY l.no + 0 FOR KEY SHARE);
  END IF;
  FOR i IN 1 .. cardinality(p_done_ends) LOOP
    RETURN QUERY SELECT v_from + s.stale, false, NULL::bigint FROM settle_done(p_done_numbers[i], p_done_queues[i], p_done_ids[v_from + 1 : p_done_ends[i]],
      p_done_tag, p_done_keep, p_now) s;
    v_from := p_done_ends[i];
  END LOOP;
  IF cardinality(p_ids) = 0 THEN
    RETURN QUERY SELECT 0, false, u.no FROM unnest(close_leases(v_leases)) u(no);
    RETURN;
  END IF;
  IF 5 = ANY (p_states) THEN
    v_queues := ARRAY(SELECT q.id FROM queue q WHERE q.name IN (
      SELECT u.queue FROM unnest(p_queues, p_states) u(queue, state) WHERE u.state = 5) ORDER BY q.id);
    FOR i IN 1 .. cardinality(v_queues) LOOP
      v_rooms := v_rooms || dead_room(v_queues[i]);
    END LOOP;
  END IF;
  FOR v_run IN SELECT * FROM current_runs(p_ids, p_queues, p_numbers) LOOP
    IF p_states[v_run.at] = 5 AND v_rooms[array_position(v_queues, v_run.queue)] <= 0 THEN
      v_full := v_full || v_run.at;
      CONTINUE;
    END IF;
    IF p_states[v_run.at] = 1 AND p_former[v_run.at] THEN
      UPDATE job SET attempts = CASE WHEN p_anew[v_run.at] THEN 0 ELSE attempts END + p_attempts[v_run.at],
        lost = lost + p_lost[v_run.at], run_at = coalesce(p_run_ats[v_run.at], run_at),
        history = CASE WHEN p_rewrite[v_run.at] THEN p_histories[v_run.at] ELSE history END,
        settled_lease = p_numbers[v_run.at], settled_tag = p_tags[v_run.at]
      WHERE ctid = v_run.tid;
      -- Another session ended the run while this one waited for its row.
      CONTINUE WHEN NOT FOUND;
      v_back := v_back || v_run.seq;
      v_back_of := v_back_of || v_run.lease;
    ELSE
      DELETE FROM job WHERE ctid = v_run.tid RETURNING * INTO v_job;
      CONTINUE WHEN NOT FOUND;
      v_job.attempts := CASE WHEN p_anew[v_run.at] THEN 0 ELSE v_job.attempts END + p_attempts[v_run.at];
      v_job.lost := v_job.lost + p_lost[v_run.at];
      v_job.run_at := coalesce(p_run_ats[v_run.at], v_job.run_at);
      v_job.history := CASE WHEN p_rewrite[v_run.at] THEN p_histories[v_run.at] ELSE v_job.history END;
      v_job.settled_lease := p_numbers[v_run.at];
      v_job.settled_tag := p_tags[v_run.at];
      IF p_gone[v_run.at] THEN
        PERFORM leave_key(v_job.queue, v_job.unique_key, v_job.id, v_job.unique_states, v_job.unique_until, p_states[v_run.at], p_now);
      ELSE
        PERFORM place(v_job, p_states[v_run.at], p_reasons[v_run.at], p_fingerprints[v_run.at], p_now);
      END IF;
    END IF;
    IF p_states[v_run.at] = 5 THEN
      v_rooms[array_position(v_queues, v_run.queue)] := v_rooms[array_position(v_queues, v_run.queue)] - 1;
    END IF;
    v_ended := v_ended || v_run.at;
    v_ended_in := v_ended_in || v_run.queue;
  END LOOP;
  PERFORM tell(e.queue, 2, p_states[e.at], count(*)::int)
    FROM unnest(v_ended, v_ended_in) e(at, queue) GROUP BY e.queue, p_states[e.at];
  PERFORM tell(e.queue, 4, NULL, count(*)::int)
    FROM unnest(v_ended, v_ended_in) e(at, queue) WHERE p_gone[e.at] GROUP BY e.queue;
  IF cardinality(v_back) > 0 THEN PERFORM give_back(v_back_of, v_back); END IF;
  -- Update each lease once, at the end: a row that is changed a thousand times in one transaction
  -- is read a thousand times each time.
  UPDATE lease l SET given_back = coalesce(l.given_back, '{}') || b.seqs
    FROM (SELECT u.lease, array_agg(u.seq) AS seqs FROM unnest(v_back_of, v_back) u(lease, seq) GROUP BY u.lease) b
    WHERE l.no = ANY (ARRAY[b.lease]);
  RETURN QUERY SELECT 0, false, u.no FROM unnest(close_leases(v_leases)) u(no);
  IF cardinality(v_ended) < cardinality(p_ids) THEN
    RETURN QUERY SELECT -o, true, NULL::bigint FROM unnest(v_full) o;
    RETURN QUERY SELECT -o::int, false, NULL::bigint FROM unnest(p_ids, p_queues, p_numbers, p_tags) WITH ORDINALITY u(id, queue, number, tag, o)
      WHERE NOT o IN (SELECT unnest(v_ended || v_full)) AND NOT is_settled(id, queue, number, tag);
  END IF;
END $$;
