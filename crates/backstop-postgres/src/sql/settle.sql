-- The runs that leases give the right to end, of those that are the current ones: by number from 1
-- on, where the job's row is, its place in line, and the lease. A job is looked up by its id and a
-- lease by its number, each on its own: left a choice, and without statistics, the planner walked
-- all jobs of a lease for each of them, at 380 ms for 1,000 runs instead of 20. per lease: id,
-- queue, number
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

-- Whether a settlement was accepted before, and nothing after it; with no tag, whichever it was. A
-- job that was moved since has left the queue of the lease.
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

-- Whether a lease has jobs; at rest are those that no other transaction ends or locks at this
-- moment. Looks from the end: runs end about in order, and whoever looks from the beginning meets
-- all that have ended.
CREATE FUNCTION lease_has_jobs(p_lease lease, p_at_rest boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT j.seq FROM job j WHERE j.queue = p_lease.queue AND j.level = p_lease.level AND j.seq BETWEEN p_lease.lo AND p_lease.hi
      AND (p_lease.handed IS NULL OR p_lease.handed @> j.seq) AND (p_lease.given_back IS NULL OR NOT j.seq = ANY (p_lease.given_back))
      AND (NOT p_at_rest OR j.xmax = 0)
    ORDER BY j.seq DESC LIMIT 1) IS NOT NULL;
END $$;

-- Removes those of these leases that have no jobs. Answers those that may have none once other
-- transactions are over: all their jobs are being ended, or somebody else has the lease locked. Of
-- settlements that overlap none may see that it is the last one, but at least one of them gets such
-- an answer, since each ends its jobs before it looks. It calls `close_emptied` after its commit.
-- Waiting here instead would be a deadlock: each of them has the lease locked.
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

-- Removes those of these leases that have no jobs, after the transactions that have them locked are
-- over. Answers which were removed. One that stays locked is passed over: emptied, it stays until
-- it expires, and a seizer removes it.
CREATE FUNCTION close_emptied(p_leases bigint[]) RETURNS TABLE (closed bigint) LANGUAGE plpgsql AS $$
DECLARE
  v_no bigint;
  v_lease lease%ROWTYPE;
BEGIN
  -- The settlement has been made: nobody waits long for this.
  PERFORM set_config('lock_timeout', '1s', true);
  FOR v_no IN SELECT u.no FROM unnest(p_leases) u(no) ORDER BY u.no LOOP
    BEGIN
      -- Whoever has this lock has not locked the lease yet, and so sees what was committed by now.
      -- Its key must be no other's, neither another schema's nor the application's: passed over for
      -- a foreign lock, the lease would stay.
      CONTINUE WHEN NOT pg_try_advisory_xact_lock(ticket_tag() + 8192, (v_no & 2147483647)::int);
      SELECT * INTO v_lease FROM lease l WHERE l.no = v_no FOR UPDATE;
      CONTINUE WHEN NOT FOUND OR lease_has_jobs(v_lease, false);
      DELETE FROM lease l WHERE l.no = v_no;
    EXCEPTION WHEN lock_not_available THEN
      -- The caller waits two seconds for all of them.
      PERFORM set_config('lock_timeout', '10ms', true);
      CONTINUE;
    END;
    closed := v_no;
    RETURN NEXT;
  END LOOP;
END $$;

-- Ends runs of one claim that succeeded, all at once: the common end. Answers which ones were
-- stale, by number from 1 on. The leases must be locked. lease, queue; per run: id; their tag,
-- whether they stay listed, now
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
    -- By id, and in the order of the ids, which is that of all indexes of `finished`. The sums keep
    -- the planner from walking the lease instead. With job and lease looked up for each run, and
    -- joined to the rows again, a drained job took about 16 us of the server instead of 14, on a
    -- busy machine and together with a CHECK on `finished.state`.
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
    -- Those that ended just now are settled too, whether or not they left something behind.
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

-- Puts places back in line: they are to be claimed before those behind the cursor. Their queues
-- must be locked. per place: the lease it was under, the place
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

-- Puts a job that is in no table where a state belongs; ready is the tail of the line.
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

-- Ends runs, none of them named twice: first those that are done, then the others, one by one as
-- `backstop_core::verdict::Transition` says. Answers which ones were not ended: those done by
-- number from 1 on, the others by number from -1 down; and whether there was no room for the dead,
-- as they were stale otherwise. A row with a lease is of no run: it is to be closed by
-- `close_emptied` after the commit. per run that is done, claim by claim: id; per claim: where its
-- ids end, queue, lease; the tag of those done, whether they stay listed; per other run: id, queue,
-- lease, tag, state, attempts more, whether those before no longer count, lost leases more, whether
-- it returns to its former place, time, reason, fingerprint, whether its history is rewritten,
-- history, whether it is gone at once; now
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
  -- In one order for everybody, so that nobody waits in a circle. Runs of one lease may be settled
  -- at the same time by several calls; a seizer passes over a lease that is being settled. Only who
  -- gives jobs back changes the lease, and where the queue stands.
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
      -- Somebody else ended it while we waited for its row.
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
  -- At the end and all at once: a row that is changed a thousand times in one transaction is read a
  -- thousand times each time.
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
