-- The functions of version 6, to the letter; the tables are src/sql/tables.sql and tables_2.sql to tables_6.sql. What a migration finds
-- where backstop was before.
-- Tells everybody that places in line are about to be drawn, until this transaction ends. The key of the lock says which: those
-- behind the last one drawn so far. Whoever sweeps reads it in pg_locks. Must come before the first place is drawn. One is enough
-- for a transaction: the mark goes with the lock, also when a savepoint is rolled back.
-- Calls are assigned, not performed: PL/pgSQL evaluates a plain expression without starting an executor.
CREATE FUNCTION ticket() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_mark text := current_schema() || ' ' || pg_current_xact_id();
  v_done text;
BEGIN
  IF current_setting('backstop.ticket', true) = v_mark THEN RETURN; END IF;
  v_done := set_config('backstop.ticket', v_mark, true);
  v_done := pg_advisory_xact_lock_shared((ticket_tag()::bigint << 48) | (coalesce(pg_sequence_last_value('line'), 1) - 1));
END $$;

-- The same for a transaction that takes but one, and so needs no mark: that costs more than the lock.
CREATE FUNCTION single_ticket() RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_done text;
BEGIN
  v_done := pg_advisory_xact_lock_shared((ticket_tag()::bigint << 48) | (coalesce(pg_sequence_last_value('line'), 1) - 1));
END $$;

-- Everything here looks for what others did a moment ago: an old snapshot would not see it.
CREATE FUNCTION see_others() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'jobs are taken in and handed out by transactions that are READ COMMITTED; this one is %',
      upper(current_setting('transaction_isolation'))
      USING ERRCODE = 'feature_not_supported', HINT = 'Begin the transaction with ISOLATION LEVEL READ COMMITTED.';
  END IF;
END $$;

-- Sets the locks of this schema apart from those of others: the upper 16 bits of the key.
CREATE FUNCTION ticket_tag() RETURNS int LANGUAGE sql STABLE AS $$
  SELECT (hashtext('backstop.' || current_schema()) & 8191) + 8192
$$;
-- The lease that holds a place in line, if one does. None holds a place that is to be claimed. Of those that end behind a place,
-- the first is nearly always the one: leases that are gone, and kept alive by a long transaction, ended before it.
CREATE FUNCTION lease_of(p_queue int, p_level smallint, p_seq bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM returned r WHERE r.queue = p_queue AND r.level = p_level AND r.seq = p_seq) THEN RETURN NULL; END IF;
  RETURN (SELECT l.no FROM lease l WHERE l.queue = p_queue AND l.level = p_level AND l.hi >= p_seq AND l.lo <= p_seq
          AND (l.handed IS NULL OR l.handed @> p_seq) AND (l.given_back IS NULL OR NOT p_seq = ANY (l.given_back)) ORDER BY l.hi LIMIT 1);
END $$;

-- Where a job stands; NULL if there is none of this id.
CREATE FUNCTION state_of(p_id uuid) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE v_state smallint;
BEGIN
  SELECT CASE WHEN lease_of(j.queue, j.level, j.seq) IS NULL THEN 1 ELSE 2 END INTO v_state FROM job j WHERE j.id = p_id;
  IF NOT FOUND THEN SELECT w.state INTO v_state FROM waiting w WHERE w.id = p_id; END IF;
  IF NOT FOUND THEN SELECT f.state INTO v_state FROM finished f WHERE f.id = p_id; END IF;
  RETURN v_state;
END $$;

-- Which of these ids are known outside of a table: 0 job, 1 waiting. Looked up anew after a row was written: a job of the same
-- id may have moved meanwhile.
CREATE FUNCTION known_outside(p_table int, p_ids uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    SELECT j.id FROM job j WHERE p_table <> 0 AND j.id = ANY (p_ids)
    UNION ALL SELECT w.id FROM waiting w WHERE p_table <> 1 AND w.id = ANY (p_ids)
    UNION ALL SELECT f.id FROM finished f WHERE f.id = ANY (p_ids));
END $$;
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

-- Where to look for changes of counts that are not added up yet. A transaction has its number before it commits: those under way when
-- it was added up are looked for by number, all others behind the highest number there was. So what was added up is not walked
-- over, however long it is kept alive. Numbers ahead of the server's own are those of another server, from which the tables were
-- copied: then all of it is looked at.
CREATE FUNCTION tallied_from(p_streams boolean, OUT p_step bigint, OUT p_xid xid8, OUT p_pending xid8[]) LANGUAGE plpgsql AS $$
BEGIN
  SELECT a.step, a.xid, a.pending INTO p_step, p_xid, p_pending FROM added a WHERE a.streams = p_streams ORDER BY a.step DESC LIMIT 1;
  IF p_xid > pg_snapshot_xmax(pg_current_snapshot()) THEN
    p_xid := '0';
    p_pending := '{}';
  END IF;
END $$;

-- Notes that everything before a number is added up that could be seen in a snapshot. What this transaction itself counts from now on
-- is not: its number is among those to look for.
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

-- Adds up what was counted, at most so many rows of it and what transactions left that took long. One at a time does, and the others
-- go on without.
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
  -- Before the rows are read: who commits in between is looked for again, and not found.
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
-- The rule of `backstop_core::unique::Hold::is_held`; a job that is gone left its key behind because its last state held it.
CREATE FUNCTION is_held(p_states smallint, p_until bigint, p_state smallint, p_now bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT (p_until IS NULL OR p_now < p_until) AND (p_state IS NULL OR (p_states >> p_state) & 1 = 1)
$$;

-- Who holds a key; NULL if nobody does.
CREATE FUNCTION key_holder(p_queue int, p_key text, p_now bigint) RETURNS uuid LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT k.id FROM key k WHERE k.queue = p_queue AND k.key = p_key AND is_held(k.states, k.until, state_of(k.id), p_now));
END $$;

-- Who holds these keys of a queue, or had them last and still lives: their numbers from 1 on; others are left out. No state: the job is gone.
CREATE FUNCTION holders(p_queue text, p_keys text[], p_now bigint) RETURNS TABLE (at int, id uuid, state smallint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT u.o::int, k.id, k.state FROM unnest(p_keys) WITH ORDINALITY u(key, o)
    CROSS JOIN LATERAL (SELECT k.id, k.states, k.until, state_of(k.id) AS state FROM key k
      WHERE k.queue = (SELECT q.id FROM queue q WHERE q.name = p_queue) AND k.key = u.key OFFSET 0) k
    WHERE is_held(k.states, k.until, k.state, p_now) OR k.state < 4;
END $$;

-- Gives a key to a job unless somebody else has it: answers who. `p_own`: the job may have had it all along.
CREATE FUNCTION take_key(p_queue int, p_key text, p_id uuid, p_states smallint, p_until bigint, p_own boolean, p_now bigint)
RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE v_key key%ROWTYPE;
BEGIN
  -- Without a lock first: who is refused must not keep the holder from ending while their own transaction goes on.
  SELECT * INTO v_key FROM key k WHERE k.queue = p_queue AND k.key = p_key;
  IF FOUND AND NOT (p_own AND v_key.id = p_id) AND is_held(v_key.states, v_key.until, state_of(v_key.id), p_now) THEN
    RETURN v_key.id;
  END IF;
  LOOP
    INSERT INTO key (queue, key, id, states, until) VALUES (p_queue, p_key, p_id, p_states, p_until)
    ON CONFLICT (queue, key) DO NOTHING;
    IF FOUND THEN RETURN NULL; END IF;
    SELECT * INTO v_key FROM key k WHERE k.queue = p_queue AND k.key = p_key FOR UPDATE;
    -- Given back between the two statements: then there is room now.
    CONTINUE WHEN NOT FOUND;
    -- A statement of its own, after the lock: it sees the holder that we waited for.
    IF NOT (p_own AND v_key.id = p_id) AND is_held(v_key.states, v_key.until, state_of(v_key.id), p_now) THEN
      RETURN v_key.id;
    END IF;
    UPDATE key SET id = p_id, states = p_states, until = p_until, forget_at = NULL WHERE queue = p_queue AND key = p_key;
    RETURN NULL;
  END LOOP;
END $$;

-- What becomes of a job's key when the job is removed in its last state: it stays behind if that state holds it.
CREATE FUNCTION leave_key(p_queue int, p_key text, p_id uuid, p_states smallint, p_until bigint, p_state smallint, p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_key IS NULL THEN RETURN; END IF;
  IF is_held(p_states, p_until, p_state, p_now) THEN
    UPDATE key SET forget_at = until WHERE queue = p_queue AND key = p_key AND id = p_id;
  ELSE
    DELETE FROM key WHERE queue = p_queue AND key = p_key AND id = p_id;
  END IF;
END $$;
-- The queue of a name, made if there is none.
CREATE FUNCTION queue_or_new(p_name text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE v_queue int;
BEGIN
  SELECT q.id INTO v_queue FROM queue q WHERE q.name = p_name;
  IF FOUND THEN RETURN v_queue; END IF;
  INSERT INTO queue (name) VALUES (p_name) ON CONFLICT (name) DO NOTHING RETURNING id INTO v_queue;
  IF v_queue IS NULL THEN
    SELECT q.id INTO v_queue FROM queue q WHERE q.name = p_name;
  ELSE
    INSERT INTO reached (queue, step, at) VALUES (v_queue, 0, '{0,0,0,0}');
    INSERT INTO total (queue) VALUES (v_queue);
  END IF;
  RETURN v_queue;
END $$;

-- Takes jobs in; answers for those that were not: their number from 1 on, and who holds their key, or that their queue is full; neither
-- if their id is known. And for queues that have a bound: their number from -1 down.
-- Every job goes into `job` first, and on into `waiting` if it has to wait: its unique ids are where pushes of one id meet, at
-- whatever time they are to run. `p_singly` is for batches with keys, or with an id twice; `p_careful` for transactions that may
-- go on for long: they touch no id that is known. `p_lowest` and `p_highest` are given for jobs that are ready now and whose ids
-- were all made within moments: hardly any other id lies between them, and one look there takes the place of one for each job.
-- queue names; then per job: which of them, now, id, level, kind, payload, time, key, its states, its end, policy
CREATE FUNCTION enqueue_jobs(p_queues text[], p_queue_at int[], p_nows bigint[], p_ids uuid[], p_levels smallint[], p_kinds text[],
  p_payloads bytea[], p_run_ats bigint[], p_keys text[], p_key_states smallint[], p_key_untils bigint[], p_retries bytea[],
  p_singly boolean, p_careful boolean, p_lowest uuid DEFAULT NULL, p_highest uuid DEFAULT NULL)
RETURNS TABLE (at int, holder uuid, is_full boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  -- NULL for one that is new, or that has a bound.
  v_queues int[] := ARRAY(SELECT (SELECT q.id FROM queue q WHERE q.name = n AND q.max_size IS NULL) FROM unnest(p_queues) n);
  v_done text;
  v_nos bigint[];
  v_in uuid[];
  v_late uuid[];
  v_known uuid[];
  v_met uuid[] := '{}';
BEGIN
  v_done := see_others();
  IF p_careful THEN v_done := ticket(); ELSE v_done := single_ticket(); END IF;
  IF array_position(v_queues, NULL) IS NOT NULL AND NOT p_singly AND cardinality(known_outside(2, p_ids)) = 0
    AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.name = ANY (p_queues) AND q.max_size IS NOT NULL)
  THEN
    -- All of them are new, and so are queues: those come into being with their jobs, and need not be looked at one by one.
    v_queues := ARRAY(SELECT queue_or_new(n) FROM unnest(p_queues) n);
  END IF;
  IF array_position(v_queues, NULL) IS NOT NULL THEN
    RETURN QUERY SELECT * FROM enqueue_bounded(p_queues, p_queue_at, p_nows, p_ids, p_levels, p_kinds, p_payloads, p_run_ats, p_keys,
      p_key_states, p_key_untils, p_retries);
    RETURN;
  END IF;
  IF p_singly THEN
    FOR i IN 1 .. cardinality(p_ids) LOOP
      RETURN QUERY SELECT i, e.holder, false FROM enqueue_one(p_queues[p_queue_at[i]], p_nows[i], p_ids[i], p_levels[i], p_kinds[i],
        p_payloads[i], p_run_ats[i], p_keys[i], p_key_states[i], p_key_untils[i], p_retries[i]) e;
    END LOOP;
    RETURN;
  END IF;
  IF p_lowest IS NOT NULL THEN
    BEGIN
      -- The places are drawn in a subquery of their own: seq and no are one number. By subscripts: PL/pgSQL has its arrays taken apart,
      -- and an unnest of all of them keeps each in a store of its own first, which was a fifth of the insert.
      INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload, retry)
      SELECT s, s, coalesce(p_run_ats[o], p_nows[o]), p_nows[o], v_queues[p_queue_at[o]], 0, 0, 0, p_levels[o], p_ids[o], p_kinds[o],
        p_payloads[o], p_retries[o] FROM (SELECT nextval('line'), o FROM generate_series(1, cardinality(p_ids)) o) x(s, o);
      v_in := p_ids;
    EXCEPTION WHEN unique_violation THEN
      -- One of them is known. The rows are gone again with the block, and are looked at one by one.
      v_in := NULL;
    END;
    IF v_in IS NOT NULL AND cardinality(p_queues) = 1 THEN
      INSERT INTO tally (queue, ready, total_enqueued) SELECT v_queues[1], cardinality(p_ids), cardinality(p_ids)
        WHERE NOT EXISTS (SELECT FROM waiting w WHERE w.id BETWEEN p_lowest AND p_highest)
          AND NOT EXISTS (SELECT FROM finished f WHERE f.id BETWEEN p_lowest AND p_highest);
      IF FOUND THEN RETURN; END IF;
    ELSIF v_in IS NOT NULL THEN
      INSERT INTO tally (queue, ready, total_enqueued)
        SELECT v_queues[a], count(*), count(*) FROM unnest(p_queue_at) a
        WHERE NOT EXISTS (SELECT FROM waiting w WHERE w.id BETWEEN p_lowest AND p_highest)
          AND NOT EXISTS (SELECT FROM finished f WHERE f.id BETWEEN p_lowest AND p_highest) GROUP BY a;
      IF FOUND THEN RETURN; END IF;
    END IF;
  END IF;
  IF v_in IS NULL THEN
    IF p_careful THEN v_met := known_outside(2, p_ids); END IF;
    v_nos := ARRAY(SELECT nextval('line') FROM generate_series(1, cardinality(p_ids)));
    WITH placed AS (
      INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload, retry)
      SELECT s, s, coalesce(t, n), n, v_queues[a], 0, 0, 0, l, i, k, p, r
      FROM unnest(v_nos, p_queue_at, p_nows, p_ids, p_levels, p_kinds, p_payloads, p_run_ats, p_retries) u(s, a, n, i, l, k, p, t, r)
      WHERE NOT p_careful OR NOT i IN (SELECT unnest(v_met))
      ON CONFLICT (id) DO NOTHING RETURNING id, run_at > inserted_at AS is_late
    ) SELECT array_agg(id), array_agg(id) FILTER (WHERE is_late) INTO v_in, v_late FROM placed;
  END IF;
  v_known := known_outside(0, v_in);
  IF cardinality(v_known) > 0 THEN DELETE FROM job WHERE id = ANY (v_known); END IF;
  IF v_late IS NOT NULL THEN PERFORM postpone(v_late); END IF;
  IF cardinality(v_known) > 0 OR v_late IS NOT NULL OR coalesce(cardinality(v_in), 0) < cardinality(p_ids) THEN
    INSERT INTO tally (queue, ready, scheduled, total_enqueued)
      SELECT x.queue, sum(x.ready), sum(1 - x.ready), count(*) FROM (
        SELECT queue, 1 AS ready FROM job WHERE id = ANY (v_in) UNION ALL SELECT queue, 0 FROM waiting WHERE id = ANY (v_in)
          AND NOT id IN (SELECT unnest(v_known))) x GROUP BY x.queue;
    RETURN QUERY SELECT o::int, NULL::uuid, false FROM unnest(p_ids) WITH ORDINALITY u(i, o)
      WHERE v_in IS NULL OR i IN (SELECT unnest(v_known)) OR NOT i IN (SELECT unnest(v_in));
  ELSE
    INSERT INTO tally (queue, ready, total_enqueued)
      SELECT v_queues[a], count(*), count(*) FROM unnest(p_queue_at) a GROUP BY a;
  END IF;
END $$;

-- The same for queues some of which have a bound, job by job as `backstop_core::bounds` says. Tells which queues these are, by number
-- from -1 down: whoever pushes to them may have to wait for others.
CREATE FUNCTION enqueue_bounded(p_queues text[], p_queue_at int[], p_nows bigint[], p_ids uuid[], p_levels smallint[], p_kinds text[],
  p_payloads bytea[], p_run_ats bigint[], p_keys text[], p_key_states smallint[], p_key_untils bigint[], p_retries bytea[])
RETURNS TABLE (at int, holder uuid, is_full boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_rooms bigint[] := rooms(p_queues);
  v_spares bigint[];
  v_states smallint[];
  v_spare record;
  v_queue int;
  a int;
BEGIN
  PERFORM lock_crowded(p_queues, p_queue_at, v_rooms);
  FOR i IN 1 .. cardinality(p_ids) LOOP
    a := p_queue_at[i];
    IF v_rooms[a] <= 0 THEN
      v_queue := (SELECT q.id FROM queue q WHERE q.name = p_queues[a]);
      -- One that would not be taken in anyway makes nobody give way.
      IF cardinality(known_outside(2, ARRAY[p_ids[i]])) = 0 AND key_holder(v_queue, p_keys[i], p_nows[i]) IS NULL THEN
        IF v_spares[a] IS NULL THEN
          SELECT * INTO v_spare FROM spare(v_queue);
          v_spares[a] := v_spare.jobs;
          v_states[a] := v_spare.state;
        END IF;
        IF v_spares[a] <= 0 OR NOT give_way(v_queue, v_states[a], p_nows[i]) THEN
          RETURN QUERY SELECT i, NULL::uuid, true;
          CONTINUE;
        END IF;
        v_spares[a] := v_spares[a] - 1;
      END IF;
    END IF;
    RETURN QUERY SELECT i, e.holder, false FROM enqueue_one(p_queues[a], p_nows[i], p_ids[i], p_levels[i], p_kinds[i], p_payloads[i],
      p_run_ats[i], p_keys[i], p_key_states[i], p_key_untils[i], p_retries[i]) e;
    IF NOT FOUND AND v_rooms[a] > 0 THEN v_rooms[a] := v_rooms[a] - 1; END IF;
  END LOOP;
  RETURN QUERY SELECT -o, NULL::uuid, false FROM generate_subscripts(v_rooms, 1) o WHERE v_rooms[o] IS NOT NULL;
END $$;

-- Moves jobs of this very transaction out of the line: their time is still to come.
CREATE FUNCTION postpone(p_ids uuid[]) RETURNS void LANGUAGE sql AS $$
  WITH late AS (DELETE FROM job WHERE id = ANY (p_ids) RETURNING *)
  INSERT INTO waiting (run_at, no, inserted_at, queue, attempts, lost, requeues, level, state, id, kind, payload, unique_key,
    unique_states, unique_until, retry)
  SELECT run_at, no, inserted_at, queue, attempts, lost, requeues, level, 0, id, kind, payload, unique_key, unique_states,
    unique_until, retry FROM late
$$;

-- Takes one job in; answers one row if it was not, with who holds its key.
CREATE FUNCTION enqueue_one(p_queue text, p_now bigint, p_id uuid, p_level smallint, p_kind text, p_payload bytea, p_run_at bigint,
  p_key text, p_key_states smallint, p_key_until bigint, p_retry bytea)
RETURNS TABLE (holder uuid) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_queue int;
  v_no bigint;
  v_waits boolean := coalesce(p_run_at > p_now, false);
BEGIN
  IF cardinality(known_outside(2, ARRAY[p_id])) > 0 THEN
    RETURN QUERY SELECT NULL::uuid;
    RETURN;
  END IF;
  v_queue := queue_or_new(p_queue);
  IF p_key IS NOT NULL THEN
    holder := take_key(v_queue, p_key, p_id, p_key_states, p_key_until, false, p_now);
    IF holder IS NOT NULL THEN
      -- Its own first push, which came in while this one waited for the key.
      IF holder = p_id AND state_of(p_id) IS NOT NULL THEN holder := NULL; END IF;
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;
  v_no := nextval('line');
  INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload, unique_key,
    unique_states, unique_until, retry)
  VALUES (v_no, v_no, coalesce(p_run_at, p_now), p_now, v_queue, 0, 0, 0, p_level, p_id, p_kind, p_payload, p_key, p_key_states,
    p_key_until, p_retry)
  ON CONFLICT (id) DO NOTHING;
  IF NOT FOUND OR cardinality(known_outside(0, ARRAY[p_id])) > 0 THEN
    -- Known after all: nothing of this push stays, neither the row nor the key.
    DELETE FROM job WHERE id = p_id AND no = v_no;
    DELETE FROM key WHERE queue = v_queue AND key = p_key AND id = p_id;
    RETURN QUERY SELECT NULL::uuid;
    RETURN;
  END IF;
  IF v_waits THEN PERFORM postpone(ARRAY[p_id]); END IF;
  PERFORM tell(v_queue, NULL, CASE WHEN v_waits THEN 0 ELSE 1 END, 1);
END $$;
-- What must not happen twice at once in a queue with a bound: a push, or a death. Held to the end of the transaction.
CREATE FUNCTION bound_lock(p_queue int, p_dead boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(((ticket_tag() + 1)::bigint << 48) - 3 - 2 * p_queue::bigint - p_dead::int);
END $$;

-- How many jobs of a queue are live, done and dead. One statement: what is added up meanwhile is in one of the two.
CREATE FUNCTION counted(p_queue int, OUT live bigint, OUT done bigint, OUT dead bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_from record;
BEGIN
  SELECT * INTO v_from FROM tallied_from(false);
  SELECT coalesce(sum(t.live), 0), coalesce(sum(t.done), 0), coalesce(sum(t.dead), 0) INTO live, done, dead FROM (
    (SELECT t.scheduled + t.ready + t.running + t.retrying AS live, t.done, t.dead FROM total t WHERE t.queue = p_queue
      ORDER BY t.step DESC LIMIT 1)
    UNION ALL SELECT t.scheduled + t.ready + t.running + t.retrying, t.done, t.dead FROM tallied(v_from.p_xid, v_from.p_pending) t
      WHERE t.queue = p_queue) t;
END $$;

-- How many of `p_bound` are left when `p_taken` are taken: the bits of a u64.
CREATE FUNCTION left_of(p_bound bigint, p_taken bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p_bound < 0 THEN 9223372036854775807 ELSE p_bound END - p_taken
$$;

-- How many more dead letters a queue holds. Nobody else's job dies in it until this transaction ends.
CREATE FUNCTION dead_room(p_queue int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  PERFORM bound_lock(p_queue, true);
  -- A statement of its own, after the lock: it sees the deaths that we waited for.
  RETURN (SELECT left_of(q.dead_max, (counted(p_queue)).dead) FROM queue q WHERE q.id = p_queue);
END $$;

-- How many more live jobs each of these queues holds; NULL where there is no bound. Nobody else pushes to those that have one until
-- this transaction ends.
CREATE FUNCTION rooms(p_names text[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  v_rooms bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_names)]);
  v_queue record;
BEGIN
  -- In one order for everybody, so that nobody waits in a circle.
  FOR v_queue IN SELECT q.id, u.o FROM unnest(p_names) WITH ORDINALITY u(name, o) JOIN queue q ON q.name = u.name
    WHERE q.max_size IS NOT NULL ORDER BY q.id
  LOOP
    PERFORM bound_lock(v_queue.id, false);
    v_rooms[v_queue.o] := (SELECT left_of(q.max_size, (counted(q.id)).live) FROM queue q WHERE q.id = v_queue.id);
  END LOOP;
  RETURN v_rooms;
END $$;

-- How many jobs of a full queue may give way to newer ones, and what becomes of them: 5 dead, 6 cancelled.
CREATE FUNCTION spare(p_queue int, OUT jobs bigint, OUT state smallint) LANGUAGE plpgsql AS $$
BEGIN
  state := (SELECT CASE q.overflow WHEN 'dead_letter_oldest' THEN 5 WHEN 'drop_oldest' THEN 6 END FROM queue q WHERE q.id = p_queue);
  IF state IS NULL THEN
    jobs := 0;
    RETURN;
  END IF;
  -- Claims pass jobs without a touch: whoever takes one out of the line keeps them waiting meanwhile.
  PERFORM 1 FROM queue q WHERE q.id = p_queue FOR UPDATE;
  jobs := CASE WHEN state = 5 THEN dead_room(p_queue) ELSE 9223372036854775807 END;
END $$;

-- Locks those of these queues in which a job may have to give way, before the first does: queues, then their deaths, each by number,
-- as claims and settlements have it. Job by job, two that push to several full queues would wait in a circle.
CREATE FUNCTION lock_crowded(p_names text[], p_queue_at int[], p_rooms bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_crowded int[] := ARRAY(
    SELECT q.id FROM unnest(p_names) WITH ORDINALITY u(name, o) JOIN queue q ON q.name = u.name
    WHERE q.overflow IN ('dead_letter_oldest', 'drop_oldest')
      AND p_rooms[u.o] < (SELECT count(*) FROM unnest(p_queue_at) p(a) WHERE p.a = u.o)
    ORDER BY q.id);
BEGIN
  IF cardinality(v_crowded) = 0 THEN RETURN; END IF;
  PERFORM 1 FROM queue q WHERE q.id = ANY (v_crowded) ORDER BY q.id FOR UPDATE;
  PERFORM bound_lock(c, true) FROM unnest(v_crowded) c JOIN queue q ON q.id = c WHERE q.overflow = 'dead_letter_oldest' ORDER BY c;
END $$;

-- Ends the oldest ready job of the least urgent; answers whether there was one. The queue must be locked.
-- The cursor goes on to its place: victims that a long transaction keeps alive are not walked over by the next search.
CREATE FUNCTION give_way(p_queue int, p_state smallint, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_reached reached%ROWTYPE;
  v_swept record;
  v_seq bigint;
  v_victim job%ROWTYPE;
  -- `backstop_core::Fingerprint::of_overflow`.
  v_fingerprint constant bigint := 3209352494638848362;
BEGIN
  SELECT * INTO v_reached FROM reached c WHERE c.queue = p_queue ORDER BY c.step DESC LIMIT 1;
  LOOP
    FOR v_level IN REVERSE 3 .. 0 LOOP
      SELECT r.seq INTO v_seq FROM returned r WHERE r.queue = p_queue AND r.level = v_level AND r.seq >= v_reached.low[v_level + 1]
        ORDER BY r.seq LIMIT 1;
      IF FOUND THEN
        DELETE FROM returned r WHERE r.queue = p_queue AND r.level = v_level AND r.seq = v_seq;
        v_reached.low[v_level + 1] := v_seq + 1;
      ELSE
        SELECT j.seq INTO v_seq FROM job j WHERE j.queue = p_queue AND j.level = v_level AND j.seq > v_reached.at[v_level + 1]
          ORDER BY j.seq LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        v_reached.at[v_level + 1] := v_seq;
      END IF;
      PERFORM reach(v_reached);
      DELETE FROM job j WHERE j.queue = p_queue AND j.level = v_level AND j.seq = v_seq RETURNING j.* INTO v_victim;
      -- A place that was given back and has no job makes no room.
      IF NOT FOUND THEN RETURN give_way(p_queue, p_state, p_now); END IF;
      PERFORM place(v_victim, p_state, 'overflow', CASE WHEN p_state = 5 THEN v_fingerprint END, p_now);
      PERFORM tell(p_queue, 1, p_state, 1);
      RETURN true;
    END LOOP;
    -- What is left may be late jobs, which the cursor has passed.
    SELECT * INTO v_swept FROM sweep(v_reached, p_now);
    v_reached := v_swept.p_reached;
    IF v_swept.late = 0 THEN
      PERFORM reach(v_reached);
      RETURN false;
    END IF;
  END LOOP;
END $$;
-- Looks for late jobs: a place is drawn before its transaction commits, and the cursor may have passed it by then. Answers where the
-- queue stands afterwards, and how many it found; they are claimed from `returned`. The queue must be locked, and where it stands be
-- noted by the caller.
--
-- A late job belongs to a transaction that drew its places before the cursor passed them. Such a transaction either was under
-- way at the sweep before this one, or began after it: then its places are behind that sweep's cursor. So it is enough to look
-- behind the last sweep's cursor, and behind the places of those transactions that were under way then and are not any more.
-- One that takes for ever costs nothing until it ends. The lock of a transaction is seen until its rows are.
CREATE FUNCTION sweep(INOUT p_reached reached, p_now bigint, OUT late int) LANGUAGE plpgsql AS $$
DECLARE
  v_pending text[];
  v_ended bigint;
  v_floor bigint;
  v_leased int8multirange;
  v_late bigint[];
BEGIN
  late := 0;
  v_pending := ARRAY(
    SELECT ((l.classid::bigint & 65535) << 32 | l.objid::bigint) || ' ' || l.virtualtransaction FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' AND l.objsubid = 1 AND l.classid::bigint >> 16 = ticket_tag()
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AND l.pid IS DISTINCT FROM pg_backend_pid());
  SELECT min(split_part(p, ' ', 1)::bigint) INTO v_ended FROM unnest(p_reached.pending) p WHERE NOT p = ANY (v_pending);
  FOR v_level IN 0 .. 3 LOOP
    v_floor := least(p_reached.swept[v_level + 1], coalesce(v_ended, p_reached.swept[v_level + 1]));
    CONTINUE WHEN v_floor >= p_reached.at[v_level + 1];
    -- Range by range: PostgreSQL 14 adds up no multiranges.
    SELECT coalesce(range_agg(r), '{}') INTO v_leased
      FROM (SELECT * FROM lease l WHERE l.queue = p_reached.queue AND l.level = v_level AND l.hi > v_floor) l
      CROSS JOIN LATERAL unnest(coalesce(l.handed, int8multirange(int8range(l.lo, l.hi, '[]')))
        - coalesce((SELECT range_agg(int8range(g, g, '[]')) FROM unnest(l.given_back) g), '{}'::int8multirange)) r;
    WITH late AS (
      INSERT INTO returned (queue, level, seq)
        SELECT p_reached.queue, v_level, j.seq FROM job j
        WHERE j.queue = p_reached.queue AND j.level = v_level AND j.seq > v_floor AND j.seq <= p_reached.at[v_level + 1]
          AND NOT v_leased @> j.seq
        ON CONFLICT DO NOTHING RETURNING seq
    ) SELECT array_agg(seq ORDER BY seq) INTO v_late FROM late;
    CONTINUE WHEN v_late IS NULL;
    p_reached.low[v_level + 1] := least(p_reached.low[v_level + 1], v_late[1]);
    late := late + cardinality(v_late);
  END LOOP;
  p_reached.swept := p_reached.at;
  p_reached.swept_at := p_now;
  p_reached.pending := v_pending;
END $$;

-- Notes where a queue stands from now on. It must be locked.
CREATE FUNCTION reach(p_reached reached) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO reached (queue, step, at, swept, low, swept_at, pending) VALUES (p_reached.queue, p_reached.step + 1, p_reached.at,
    p_reached.swept, p_reached.low, p_reached.swept_at, p_reached.pending);
  DELETE FROM reached c WHERE c.queue = p_reached.queue AND c.step = p_reached.step;
END $$;
-- What a claim holds, for whoever claimed or seized it. Jobs are looked up lease by lease: left a choice, and once it had statistics, the
-- planner read all jobs of the queue for each claim, at 30 ms where 100,000 of them were running.
CREATE FUNCTION held(p_number bigint)
RETURNS TABLE (queue text, level smallint, seq bigint, id uuid, kind text, payload bytea, attempts int, lost int, inserted_at bigint,
  run_at bigint, retry bytea, history bytea, vanished_worker text, vanished_number bigint, begun boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT q.name, j.level, j.seq, j.id, j.kind, j.payload, j.attempts, j.lost, j.inserted_at, j.run_at, j.retry, j.history,
    l.vanished_worker, l.vanished_number, coalesce(j.seq = ANY (l.begun), false)
  FROM lease l
  JOIN queue q ON q.id = l.queue
  CROSS JOIN LATERAL (SELECT j.* FROM job j WHERE j.queue = l.queue AND j.level = l.level AND j.seq BETWEEN l.lo AND l.hi OFFSET 0) j
  WHERE l.number = p_number AND (l.handed IS NULL OR l.handed @> j.seq) AND (l.given_back IS NULL OR NOT j.seq = ANY (l.given_back));
END $$;

-- Leases places of one queue and level: `p_seqs` in order. Places with many holes among them are spread over several leases:
-- one that has to be kept outside of its row would be fetched again for every job that is settled.
CREATE FUNCTION lease_out(p_number bigint, p_worker text, p_until bigint, p_queue int, p_level smallint, p_seqs bigint[], p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_jobs int := cardinality(p_seqs);
  v_ranges_max constant int := 256;
  v_handed int8multirange;
  v_part bigint[];
BEGIN
  INSERT INTO tally (queue, ready, running) VALUES (p_queue, -v_jobs, v_jobs);
  IF p_seqs[v_jobs] - p_seqs[1] + 1 <> v_jobs THEN
    v_handed := (SELECT range_agg(int8range(s, s, '[]')) FROM unnest(p_seqs) s);
  END IF;
  IF v_handed IS NULL OR v_jobs <= v_ranges_max OR (SELECT count(*) FROM unnest(v_handed)) <= v_ranges_max THEN
    INSERT INTO lease (number, worker, since, until, queue, level, lo, hi, handed)
    VALUES (p_number, p_worker, p_now, p_until, p_queue, p_level, p_seqs[1], p_seqs[v_jobs], v_handed);
    RETURN;
  END IF;
  FOR i IN 0 .. (v_jobs - 1) / v_ranges_max LOOP
    v_part := p_seqs[i * v_ranges_max + 1 : (i + 1) * v_ranges_max];
    INSERT INTO lease (number, worker, since, until, queue, level, lo, hi, handed)
    VALUES (p_number, p_worker, p_now, p_until, p_queue, p_level, v_part[1], v_part[cardinality(v_part)],
      (SELECT range_agg(int8range(s, s, '[]')) FROM unnest(v_part) s));
  END LOOP;
END $$;

-- Hands out ready jobs; what is left of it, if this claim was made before. Claims of one queue wait for each other: they are
-- short, and none of them waits for a disk.
-- The places are read first and the jobs after, by their range: `seq = ANY (…)` alone made the planner walk the whole queue.
CREATE FUNCTION claim(p_number bigint, p_worker text, p_until bigint, p_queues text[], p_max int[], p_now bigint)
RETURNS TABLE (queue text, level smallint, seq bigint, id uuid, kind text, payload bytea, attempts int, lost int, inserted_at bigint,
  run_at bigint, retry bytea, history bytea, vanished_worker text, vanished_number bigint, begun boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_locked int[];
  v_queue int;
  v_seqs bigint[];
  v_reached reached%ROWTYPE;
  v_before reached%ROWTYPE;
  v_swept record;
  v_left int;
  v_round int;
BEGIN
  -- Only these: a queue that comes into being meanwhile is not locked.
  v_locked := ARRAY(SELECT q.id FROM queue q WHERE q.name = ANY (p_queues) ORDER BY q.id FOR UPDATE);
  IF EXISTS (SELECT 1 FROM lease l WHERE l.number = p_number) THEN
    RETURN QUERY SELECT * FROM held(p_number);
    -- Once nothing is left of it, the number is as good as new.
    IF FOUND THEN RETURN; END IF;
  END IF;
  FOR v_want IN 1 .. cardinality(p_queues) LOOP
    SELECT q.id INTO v_queue FROM queue q WHERE q.name = p_queues[v_want] AND q.id = ANY (v_locked) AND NOT q.paused;
    v_left := p_max[v_want];
    CONTINUE WHEN NOT FOUND OR v_left <= 0;
    SELECT * INTO v_reached FROM reached c WHERE c.queue = v_queue ORDER BY c.step DESC LIMIT 1;
    v_before := v_reached;
    -- A queue that always has more than is wanted is swept by the clock; one that runs dry, at once.
    IF (v_reached.at <> v_reached.swept OR v_reached.pending <> '{}') AND NOT p_now - v_reached.swept_at BETWEEN 0 AND 1000000 THEN
      SELECT * INTO v_swept FROM sweep(v_reached, p_now);
      v_reached := v_swept.p_reached;
    END IF;
    v_round := 1;
    LOOP
      FOR v_level IN 0 .. 3 LOOP
        v_seqs := ARRAY(SELECT r.seq FROM returned r WHERE r.queue = v_queue AND r.level = v_level
          AND r.seq >= v_reached.low[v_level + 1] ORDER BY r.seq LIMIT v_left);
        IF cardinality(v_seqs) > 0 THEN
          -- These and no others: a job may have been given back since they were read.
          DELETE FROM returned r WHERE r.queue = v_queue AND r.level = v_level
            AND r.seq BETWEEN v_seqs[1] AND v_seqs[cardinality(v_seqs)] AND r.seq = ANY (v_seqs);
          PERFORM lease_out(p_number, p_worker, p_until, v_queue, v_level::smallint, v_seqs, p_now);
          RETURN QUERY SELECT p_queues[v_want], j.level, j.seq, j.id, j.kind, j.payload, j.attempts, j.lost, j.inserted_at, j.run_at,
              j.retry, j.history, NULL::text, NULL::bigint, false
            FROM job j WHERE j.queue = v_queue AND j.level = v_level AND j.seq BETWEEN v_seqs[1] AND v_seqs[cardinality(v_seqs)]
              AND j.seq = ANY (v_seqs) ORDER BY j.seq;
          v_reached.low[v_level + 1] := v_seqs[cardinality(v_seqs)] + 1;
          v_left := v_left - cardinality(v_seqs);
          EXIT WHEN v_left = 0;
        END IF;
        v_seqs := ARRAY(SELECT j.seq FROM job j WHERE j.queue = v_queue AND j.level = v_level AND j.seq > v_reached.at[v_level + 1]
          ORDER BY j.seq LIMIT v_left);
        IF cardinality(v_seqs) > 0 THEN
          PERFORM lease_out(p_number, p_worker, p_until, v_queue, v_level::smallint, v_seqs, p_now);
          -- A range without a hole is all ours; one with holes may have a late job in it that this statement already sees.
          RETURN QUERY SELECT p_queues[v_want], j.level, j.seq, j.id, j.kind, j.payload, j.attempts, j.lost, j.inserted_at, j.run_at,
              j.retry, j.history, NULL::text, NULL::bigint, false
            FROM job j WHERE j.queue = v_queue AND j.level = v_level AND j.seq BETWEEN v_seqs[1] AND v_seqs[cardinality(v_seqs)]
              AND (v_seqs[cardinality(v_seqs)] - v_seqs[1] + 1 = cardinality(v_seqs) OR j.seq = ANY (v_seqs)) ORDER BY j.seq;
          v_reached.at[v_level + 1] := v_seqs[cardinality(v_seqs)];
          v_left := v_left - cardinality(v_seqs);
          EXIT WHEN v_left = 0;
        END IF;
      END LOOP;
      EXIT WHEN v_left = 0 OR v_round = 2 OR (v_reached.at = v_reached.swept AND v_reached.pending = '{}');
      SELECT * INTO v_swept FROM sweep(v_reached, p_now);
      v_reached := v_swept.p_reached;
      EXIT WHEN v_swept.late = 0;
      v_round := 2;
    END LOOP;
    IF v_reached <> v_before THEN PERFORM reach(v_reached); END IF;
  END LOOP;
END $$;
-- The runs that leases give the right to end, of those that are the current ones: by number from 1 on, where the job's row is, its
-- place in line, and the lease. A job is looked up by its id and a lease by its number, each on its own: left a choice, and
-- without statistics, the planner walked all jobs of a lease for each of them, at 380 ms for 1,000 runs instead of 20.
-- per lease: id, queue, number
CREATE FUNCTION current_runs(p_ids uuid[], p_queues text[], p_numbers bigint[])
RETURNS TABLE (at int, tid tid, queue int, level smallint, seq bigint, lease bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT u.o::int, j.ctid, j.queue, j.level, j.seq, l.no
  FROM unnest(p_ids, p_queues, p_numbers) WITH ORDINALITY u(id, queue, number, o)
  CROSS JOIN LATERAL (SELECT j.ctid, j.queue, j.level, j.seq FROM job j WHERE j.id = u.id OFFSET 0) j
  CROSS JOIN LATERAL (SELECT l.no FROM lease l WHERE l.number = u.number AND l.queue + 0 = j.queue AND l.level + 0 = j.level
    AND j.seq BETWEEN l.lo AND l.hi AND (l.handed IS NULL OR l.handed @> j.seq)
    AND (l.given_back IS NULL OR NOT j.seq = ANY (l.given_back)) OFFSET 0) l
  WHERE j.queue = (SELECT q.id FROM queue q WHERE q.name = u.queue);
END $$;

-- Whether a settlement was accepted before, and nothing after it. A job that was moved since has left the queue of the lease.
CREATE FUNCTION is_settled(p_id uuid, p_queue text, p_number bigint, p_tag smallint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_queue int := (SELECT q.id FROM queue q WHERE q.name = p_queue);
BEGIN
  RETURN EXISTS (SELECT 1 FROM job j WHERE j.id = p_id AND j.queue + 0 = v_queue AND j.settled_lease = p_number AND j.settled_tag = p_tag)
    OR EXISTS (SELECT 1 FROM waiting w WHERE w.id = p_id AND w.queue = v_queue AND w.settled_lease = p_number AND w.settled_tag = p_tag)
    OR EXISTS (SELECT 1 FROM finished f WHERE f.id = p_id AND f.queue + 0 = v_queue AND f.settled_lease = p_number AND f.settled_tag = p_tag);
END $$;

-- Removes those of these leases that hold nothing any more. One that somebody else settles at this moment stays, and is removed by
-- whoever finds it expired. Looks from the end: runs end about in order, and whoever looks from the beginning meets all that have ended.
CREATE FUNCTION close_leases(p_leases bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM lease WHERE no = ANY (ARRAY(
    SELECT l.no FROM lease l WHERE l.no = ANY (p_leases) AND (
      SELECT j.seq FROM job j WHERE j.queue = l.queue AND j.level = l.level AND j.seq BETWEEN l.lo AND l.hi
        AND (l.handed IS NULL OR l.handed @> j.seq) AND (l.given_back IS NULL OR NOT j.seq = ANY (l.given_back))
      ORDER BY j.seq DESC LIMIT 1) IS NULL
    FOR UPDATE SKIP LOCKED));
END $$;

-- Ends runs of one claim that succeeded, all at once: the common end. Answers which ones were stale, by number from 1 on. The
-- leases must be locked.
-- lease, queue; per run: id; their tag, whether they stay listed, now
CREATE FUNCTION settle_done(p_number bigint, p_queue text, p_ids uuid[], p_tag smallint, p_keep boolean, p_now bigint)
RETURNS TABLE (stale int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_lease record;
  v_ended int;
  v_gone uuid[];
  v_freed int;
  v_done text;
BEGIN
  SELECT l.*, count(*) OVER () AS leases INTO v_lease FROM lease l
    WHERE l.number = p_number AND l.queue + 0 = (SELECT q.id FROM queue q WHERE q.name = p_queue);
  IF v_lease.leases > 1 THEN
    RETURN QUERY SELECT s.stale FROM settle_spread(p_number, p_queue, p_ids, p_tag, p_keep, p_now) s;
    RETURN;
  END IF;
  IF v_lease.leases = 1 AND p_keep THEN
    -- By id, and in the order of the ids, which is that of all indexes of `finished`. The sums keep the planner from walking the
    -- lease instead. With job and lease looked up for each run, and joined to the rows again, a drained job took about 16 us
    -- of the server instead of 14, on a busy machine and together with a CHECK on `finished.state`.
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
    v_done := close_leases(ARRAY[v_lease.no]);
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
  v_left bigint[];
BEGIN
  WITH ended AS (
    DELETE FROM job j USING current_runs(p_ids, array_fill(p_queue, ARRAY[v_runs]), array_fill(p_number, ARRAY[v_runs])) r
    WHERE j.ctid = r.tid RETURNING j.*, r.lease, r.at
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
  ) SELECT array_agg(at), array_agg(DISTINCT lease) INTO v_ended, v_left FROM ended WHERE (SELECT count(*) FROM freed) >= 0;
  PERFORM close_leases(v_left);
  IF coalesce(cardinality(v_ended), 0) < v_runs THEN
    RETURN QUERY SELECT o::int FROM unnest(p_ids) WITH ORDINALITY u(id, o)
      WHERE (v_ended IS NULL OR NOT o IN (SELECT unnest(v_ended))) AND NOT is_settled(id, p_queue, p_number, p_tag);
  END IF;
END $$;

-- Puts places back in line: they are to be claimed before those behind the cursor. Their queues must be locked.
-- per place: the lease it was under, the place
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
-- `backstop_core::verdict::Transition` says. Answers which ones were not ended: those done by number from 1 on, the others by number
-- from -1 down; and whether there was no room for the dead, as they were stale otherwise.
-- per run that is done, claim by claim: id; per claim: where its ids end, queue, lease; the tag of those done, whether they stay
-- listed; per other run: id, queue, lease, tag, state,
-- attempts more, whether those before no longer count, lost leases more, whether it returns to its former place, time, reason,
-- fingerprint, whether its history is rewritten, history, whether it is gone at once; now
CREATE FUNCTION settle(p_done_ids uuid[], p_done_ends int[], p_done_queues text[], p_done_numbers bigint[], p_done_tag smallint,
  p_done_keep boolean,
  p_ids uuid[], p_queues text[], p_numbers bigint[], p_tags smallint[], p_states smallint[], p_attempts int[],
  p_anew boolean[], p_lost int[], p_former boolean[], p_run_ats bigint[], p_reasons text[], p_fingerprints bigint[], p_rewrite boolean[],
  p_histories bytea[], p_gone boolean[], p_now bigint)
RETURNS TABLE (at int, is_full boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_run record;
  v_job job%ROWTYPE;
  v_ended int[] := '{}';
  v_ended_in int[] := '{}';
  v_leases bigint[] := '{}';
  v_back bigint[] := '{}';
  v_back_of bigint[] := '{}';
  v_full int[] := '{}';
  v_queues int[];
  v_rooms bigint[] := '{}';
  v_from int := 0;
BEGIN
  -- In one order for everybody, so that nobody waits in a circle. Runs of one lease may be settled at the same time by several
  -- calls; a seizer passes over a lease that is being settled. Only who gives jobs back changes the lease, and where the queue stands.
  IF true = ANY (p_former) THEN
    PERFORM 1 FROM queue q WHERE q.name IN (SELECT u.queue FROM unnest(p_queues, p_states, p_former) u(queue, state, former)
      WHERE u.state = 1 AND u.former) ORDER BY q.id FOR UPDATE;
    PERFORM 1 FROM lease l WHERE l.number = ANY (p_done_numbers || p_numbers) ORDER BY l.no FOR UPDATE;
  ELSE
    PERFORM 1 FROM lease l WHERE l.number = ANY (p_done_numbers || p_numbers) ORDER BY l.no FOR KEY SHARE;
  END IF;
  FOR i IN 1 .. cardinality(p_done_ends) LOOP
    RETURN QUERY SELECT v_from + s.stale, false FROM settle_done(p_done_numbers[i], p_done_queues[i], p_done_ids[v_from + 1 : p_done_ends[i]],
      p_done_tag, p_done_keep, p_now) s;
    v_from := p_done_ends[i];
  END LOOP;
  IF cardinality(p_ids) = 0 THEN RETURN; END IF;
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
    v_leases := v_leases || v_run.lease;
    v_ended := v_ended || v_run.at;
    v_ended_in := v_ended_in || v_run.queue;
  END LOOP;
  PERFORM tell(e.queue, 2, p_states[e.at], count(*)::int)
    FROM unnest(v_ended, v_ended_in) e(at, queue) GROUP BY e.queue, p_states[e.at];
  PERFORM tell(e.queue, 4, NULL, count(*)::int)
    FROM unnest(v_ended, v_ended_in) e(at, queue) WHERE p_gone[e.at] GROUP BY e.queue;
  IF cardinality(v_back) > 0 THEN PERFORM give_back(v_back_of, v_back); END IF;
  -- At the end and all at once: a row that is changed a thousand times in one transaction is read a thousand times each time.
  UPDATE lease l SET given_back = coalesce(l.given_back, '{}') || b.seqs
    FROM (SELECT u.lease, array_agg(u.seq) AS seqs FROM unnest(v_back_of, v_back) u(lease, seq) GROUP BY u.lease) b
    WHERE l.no = ANY (ARRAY[b.lease]);
  PERFORM close_leases(v_leases);
  IF cardinality(v_ended) < cardinality(p_ids) THEN
    RETURN QUERY SELECT -o, true FROM unnest(v_full) o;
    RETURN QUERY SELECT -o::int, false FROM unnest(p_ids, p_queues, p_numbers, p_tags) WITH ORDINALITY u(id, queue, number, tag, o)
      WHERE NOT o IN (SELECT unnest(v_ended || v_full)) AND NOT is_settled(id, queue, number, tag);
  END IF;
END $$;
-- Keeps claims alive; answers which of the named leases are lost, by number from 1 on. The end of a claim follows
-- `backstop_core::lease::extended`.
-- worker, its queues, per lease: id, queue, number; the new end, the last end that is not cut short, now
CREATE FUNCTION beat(p_worker text, p_served text, p_ids uuid[], p_queues text[], p_numbers bigint[], p_until bigint,
  p_longest bigint, p_now bigint)
RETURNS TABLE (lost int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_lost int[];
BEGIN
  INSERT INTO worker (name, queues, seen_at) VALUES (p_worker, p_served, p_now)
  ON CONFLICT (name) DO UPDATE SET queues = excluded.queues, seen_at = excluded.seen_at;
  IF cardinality(p_ids) = 0 THEN RETURN; END IF;
  PERFORM 1 FROM lease l WHERE l.number = ANY (p_numbers) ORDER BY l.no FOR NO KEY UPDATE;
  v_lost := ARRAY(SELECT o::int FROM generate_series(1, cardinality(p_ids)) o
    WHERE NOT o IN (SELECT r.at FROM current_runs(p_ids, p_queues, p_numbers) r));
  UPDATE lease l SET until = CASE WHEN l.until > p_longest THEN p_until ELSE greatest(l.until, p_until) END
  WHERE l.number = ANY (ARRAY(SELECT DISTINCT number FROM unnest(p_numbers) WITH ORDINALITY u(number, o)
    WHERE NOT o IN (SELECT unnest(v_lost))));
  RETURN QUERY SELECT unnest(v_lost);
END $$;

-- Notes that runs have begun; answers which leases are lost, by number from 1 on.
-- per lease: id, queue, number
CREATE FUNCTION begin_runs(p_ids uuid[], p_queues text[], p_numbers bigint[]) RETURNS TABLE (lost int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_done text := see_others();
BEGIN
  PERFORM 1 FROM lease l WHERE l.number = ANY (p_numbers) ORDER BY l.no FOR NO KEY UPDATE;
  -- A seizer does not run the job: what is known of the worker that vanished stays.
  UPDATE lease l SET begun = coalesce(l.begun, '{}') || r.seqs
    FROM (SELECT r.lease, array_agg(DISTINCT r.seq) AS seqs FROM current_runs(p_ids, p_queues, p_numbers) r GROUP BY r.lease) r
    WHERE l.no = ANY (ARRAY[r.lease]) AND l.vanished_worker IS NULL AND NOT coalesce(l.begun @> r.seqs, false);
  RETURN QUERY SELECT o FROM generate_series(1, cardinality(p_ids)) o
    WHERE NOT o IN (SELECT r.at FROM current_runs(p_ids, p_queues, p_numbers) r);
END $$;
-- Takes over jobs of expired claims, as `backstop_core::lease::is_expired` says, the earliest claim first; what is left of it, if
-- this was done before under the same number. A lease that somebody settles at this moment is not dead, and passed over.
-- Looks no further back than it is told to: leases that ended before, and are kept alive by a long transaction, are not walked over.
-- number, worker, end, how many, now, the longest end anybody can have asked for, from when on
CREATE FUNCTION seize(p_number bigint, p_worker text, p_until bigint, p_max int, p_now bigint, p_longest bigint, p_from bigint)
RETURNS TABLE (queue text, level smallint, seq bigint, id uuid, kind text, payload bytea, attempts int, lost int, inserted_at bigint,
  run_at bigint, retry bytea, history bytea, vanished_worker text, vanished_number bigint, begun boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_no bigint;
  v_lease lease%ROWTYPE;
  v_left int := p_max;
  v_seqs bigint[];
  v_taken bigint[];
BEGIN
  -- Two calls under one number: the second waits, and then finds what the first has taken.
  PERFORM pg_advisory_xact_lock(p_number);
  IF p_max > 0 AND NOT EXISTS (SELECT 1 FROM lease l WHERE l.number = p_number) THEN
    -- The rule of `backstop_core::lease::moved_back`, with its minute: workers that were not heard of since the clock was set back.
    UPDATE lease l SET until = p_now + m.lasts
      FROM (SELECT l.no, l.until - w.seen_at AS lasts FROM lease l JOIN worker w ON w.name = l.worker
        WHERE w.seen_at > p_now + 60000000 AND l.until >= w.seen_at FOR UPDATE OF l SKIP LOCKED) m
      WHERE l.no = m.no;
    -- As many leases as jobs are wanted: each holds one, or goes. With a hundred thousand of them no call sorts all.
    FOR v_no IN
      SELECT x.no FROM (
        (SELECT l.until, l.number, l.queue, l.level, l.lo, l.no FROM lease l WHERE l.until >= p_from AND l.until < p_now
          ORDER BY l.until, l.number LIMIT p_max)
        UNION ALL (SELECT l.until, l.number, l.queue, l.level, l.lo, l.no FROM lease l WHERE l.until > p_longest
          ORDER BY l.until, l.number LIMIT p_max)) x
      ORDER BY x.until, x.number, (SELECT q.name FROM queue q WHERE q.id = x.queue), x.level, x.lo
    LOOP
      SELECT * INTO v_lease FROM lease l WHERE l.no = v_no AND (l.until < p_now OR l.until > p_longest) FOR UPDATE SKIP LOCKED;
      CONTINUE WHEN NOT FOUND;
      -- One more than are wanted: whether some are left.
      v_seqs := ARRAY(SELECT j.seq FROM job j WHERE j.queue = v_lease.queue AND j.level = v_lease.level
        AND j.seq BETWEEN v_lease.lo AND v_lease.hi AND (v_lease.handed IS NULL OR v_lease.handed @> j.seq)
        AND (v_lease.given_back IS NULL OR NOT j.seq = ANY (v_lease.given_back)) ORDER BY j.seq LIMIT v_left + 1);
      IF cardinality(v_seqs) = 0 THEN
        DELETE FROM lease WHERE no = v_lease.no;
      ELSIF cardinality(v_seqs) <= v_left THEN
        UPDATE lease SET number = p_number, worker = p_worker, since = p_now, until = p_until,
          vanished_worker = coalesce(vanished_worker, worker), vanished_number = coalesce(vanished_number, number)
        WHERE no = v_lease.no;
        v_left := v_left - cardinality(v_seqs);
      ELSE
        v_taken := v_seqs[1 : v_left];
        INSERT INTO lease (number, lo, hi, since, until, queue, level, worker, handed, begun, vanished_worker, vanished_number)
        VALUES (p_number, v_taken[1], v_taken[v_left], p_now, p_until, v_lease.queue, v_lease.level, p_worker,
          (SELECT range_agg(int8range(s, s, '[]')) FROM unnest(v_taken) s), v_lease.begun,
          coalesce(v_lease.vanished_worker, v_lease.worker), coalesce(v_lease.vanished_number, v_lease.number));
        -- What is left begins behind what was taken. Noted among those given back, it would be met again by every call after this
        -- one, and compared with all that were taken before: 6,000 jobs of three leases, 50 by 50, took 3.5 s instead.
        UPDATE lease SET lo = v_taken[v_left] + 1, handed = handed * int8multirange(int8range(v_taken[v_left] + 1, hi, '[]')),
          given_back = ARRAY(SELECT g FROM unnest(given_back) g WHERE g > v_taken[v_left])
        WHERE no = v_lease.no;
        v_left := 0;
      END IF;
      EXIT WHEN v_left = 0;
    END LOOP;
  END IF;
  RETURN QUERY SELECT * FROM held(p_number);
END $$;
-- Makes jobs ready whose time has come, and adds up what was counted meanwhile. Looks no further back than it is told to: what was made
-- ready before is not walked over, however long it is kept alive.
-- how many, now, from when on
CREATE FUNCTION promote(p_max int, p_now bigint, p_from bigint) RETURNS TABLE (moved int, next_due bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_first bigint := (SELECT w.run_at FROM waiting w WHERE w.run_at >= p_from ORDER BY w.run_at, w.no LIMIT 1);
BEGIN
  moved := 0;
  next_due := v_first;
  IF v_first <= p_now THEN
    -- One after the other: two at once would mix up the order of their jobs.
    PERFORM pg_advisory_xact_lock(((ticket_tag() + 1)::bigint << 48) - 1);
    PERFORM ticket();
    WITH due AS (
      DELETE FROM waiting w WHERE w.ctid = ANY (ARRAY(
        SELECT d.ctid FROM waiting d WHERE d.run_at BETWEEN v_first AND p_now ORDER BY d.run_at, d.no LIMIT p_max FOR UPDATE SKIP LOCKED))
      RETURNING w.*
    ), placed AS (
      INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload, unique_key,
        unique_states, unique_until, retry, history, settled_lease, settled_tag)
      SELECT nextval('line'), d.* FROM (
        SELECT no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload, unique_key, unique_states,
          unique_until, retry, history, settled_lease, settled_tag FROM due ORDER BY run_at, no) d
    ), told AS (
      INSERT INTO tally (queue, scheduled, retrying, ready)
      SELECT queue, -count(*) FILTER (WHERE state = 0), -count(*) FILTER (WHERE state = 3), count(*) FROM due GROUP BY queue
    ) SELECT count(*) INTO moved FROM due;
    next_due := (SELECT w.run_at FROM waiting w WHERE w.run_at >= v_first ORDER BY w.run_at, w.no LIMIT 1);
  END IF;
  PERFORM add_up(5000);
  RETURN NEXT;
END $$;
-- Does something to jobs, as `backstop_core::amend` permits: 0 retry, 1 cancel, 2 delete, 3 move. Answers for those it did not: their
-- number from 1 on, why, and for a key of another live job, whose. With a filter, a job that does not fit any more is passed
-- in silence.
-- 0 not found, 1 running, 2 done, 3 ready, 4 ended, 5 twin, 6 does not fit, 7 alive, 10 and its state: not in the one that was meant
-- ids, action, the queue to move to, the state that is meant; filter: whether there is one, queue, kind, state, fingerprint; now
CREATE FUNCTION amend(p_ids uuid[], p_action int, p_to text, p_only smallint, p_filtered boolean, p_queue text, p_kind text,
  p_state smallint, p_fingerprint bigint, p_now bigint)
RETURNS TABLE (at int, refusal int, twin uuid) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_answer record;
  v_locked int[];
BEGIN
  -- Claims pass jobs without a touch: whoever takes one out of the line keeps them waiting meanwhile.
  v_locked := ARRAY(SELECT q.id FROM queue q WHERE q.id IN (SELECT j.queue FROM job j WHERE j.id = ANY (p_ids)
    UNION SELECT w.queue FROM waiting w WHERE w.id = ANY (p_ids)
    UNION SELECT f.queue FROM finished f WHERE f.id = ANY (p_ids)) ORDER BY q.id FOR UPDATE);
  PERFORM 1 FROM lease l WHERE l.no IN (SELECT lease_of(j.queue, j.level, j.seq) FROM job j WHERE j.id = ANY (p_ids))
    ORDER BY l.no FOR UPDATE;
  PERFORM ticket();
  FOR i IN 1 .. cardinality(p_ids) LOOP
    SELECT * INTO v_answer FROM amend_one(p_ids[i], v_locked, p_action, p_to, p_only, p_filtered, p_queue, p_kind, p_state,
      p_fingerprint, p_now);
    IF v_answer.refusal IS NOT NULL THEN
      RETURN QUERY SELECT i, v_answer.refusal, v_answer.twin;
    END IF;
  END LOOP;
END $$;

CREATE FUNCTION amend_one(p_id uuid, p_locked int[], p_action int, p_to text, p_only smallint, p_filtered boolean, p_queue text,
  p_kind text, p_state smallint, p_fingerprint bigint, p_now bigint, OUT refusal int, OUT twin uuid) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_job job%ROWTYPE;
  v_state smallint;
  v_lease bigint;
  v_fingerprint bigint;
  v_to int;
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
      -- A number nobody writes is damage; dead is where a person looks.
      SELECT CASE WHEN f.state IN (4, 6) THEN f.state ELSE 5 END, f.fingerprint INTO v_state, v_fingerprint
        FROM finished f WHERE f.id = p_id;
      IF v_state IS NULL THEN
        -- It may have been promoted between the looks: then it is in line now, and cannot leave it unseen.
        SELECT * INTO v_job FROM job j WHERE j.id = p_id FOR UPDATE;
        v_state := CASE WHEN FOUND THEN 1 END;
      END IF;
    END IF;
  END IF;
  -- A job that came in after the queues were locked is not there yet. One whose queue is missing can be deleted.
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
  v_to := CASE WHEN p_action = 3 THEN queue_or_new(p_to) ELSE v_job.queue END;
  IF p_action IN (0, 3) AND v_state >= 4 AND v_job.unique_key IS NOT NULL THEN
    twin := take_key(v_to, v_job.unique_key, p_id, v_job.unique_states, v_job.unique_until, true, p_now);
    IF twin IS NOT NULL THEN refusal := 5; RETURN; END IF;
  END IF;
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
    -- A level that is none would never be claimed.
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

-- Takes a job out of its table, and out of its lease or its place in line.
CREATE FUNCTION take_out(p_job job, p_state smallint, p_lease bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_state IN (1, 2) THEN
    DELETE FROM job WHERE queue = p_job.queue AND level = p_job.level AND seq = p_job.seq;
    IF p_lease IS NULL THEN
      DELETE FROM returned WHERE queue = p_job.queue AND level = p_job.level AND seq = p_job.seq;
    ELSE
      PERFORM close_leases(ARRAY[p_lease]);
    END IF;
  ELSIF p_state IN (0, 3) THEN
    DELETE FROM waiting WHERE id = p_job.id;
  ELSE
    DELETE FROM finished WHERE id = p_job.id;
  END IF;
END $$;

-- The next jobs in order of arrival that a filter fits and an action could apply to, at most so many; looks at no more than
-- `p_looks` jobs. `next_no` is where to go on, NULL at the end; the row with no id only says that.
-- after which number, filter: queue, kind, states by bit, fingerprint; how many, how many to look at
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
-- Takes dead letters in; answers for those that were not: their number from 1 on, and whether their queue's dead letters are at
-- their bound; if not, their id is known. Each goes through `job`, whose unique ids are where pushes of one id meet.
-- per letter: queue, id, level, kind, payload, time, key, its states, its end, policy, attempts, lost leases, requeues, when it came in,
-- when it died, reason, history, fingerprint
CREATE FUNCTION bury(p_queues text[], p_ids uuid[], p_levels smallint[], p_kinds text[], p_payloads bytea[], p_run_ats bigint[],
  p_keys text[], p_key_states smallint[], p_key_untils bigint[], p_retries bytea[], p_attempts int[], p_lost int[], p_requeues int[],
  p_inserted_ats bigint[], p_finished_ats bigint[], p_reasons text[], p_histories bytea[], p_fingerprints bigint[])
RETURNS TABLE (at int, is_full boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_queues int[];
  v_rooms bigint[] := '{}';
  v_queue int;
  v_place int;
  v_job job%ROWTYPE;
  v_no bigint;
BEGIN
  v_queues := ARRAY(SELECT q.id FROM queue q WHERE q.name = ANY (p_queues) ORDER BY q.id);
  FOR i IN 1 .. cardinality(v_queues) LOOP
    v_rooms := v_rooms || dead_room(v_queues[i]);
  END LOOP;
  FOR i IN 1 .. cardinality(p_ids) LOOP
    IF cardinality(known_outside(2, ARRAY[p_ids[i]])) > 0 THEN
      RETURN QUERY SELECT i, false;
      CONTINUE;
    END IF;
    v_queue := queue_or_new(p_queues[i]);
    v_place := array_position(v_queues, v_queue);
    IF v_place IS NULL THEN
      v_queues := v_queues || v_queue;
      v_rooms := v_rooms || dead_room(v_queue);
      v_place := cardinality(v_queues);
    END IF;
    IF v_rooms[v_place] <= 0 THEN
      RETURN QUERY SELECT i, true;
      CONTINUE;
    END IF;
    v_no := nextval('line');
    INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload, unique_key,
      unique_states, unique_until, retry, history)
    VALUES (v_no, v_no, p_run_ats[i], p_inserted_ats[i], v_queue, p_attempts[i], p_lost[i], p_requeues[i], p_levels[i], p_ids[i],
      p_kinds[i], p_payloads[i], p_keys[i], p_key_states[i], p_key_untils[i], p_retries[i], p_histories[i])
    ON CONFLICT (id) DO NOTHING;
    DELETE FROM job j WHERE j.id = p_ids[i] AND j.no = v_no RETURNING j.* INTO v_job;
    IF NOT FOUND OR cardinality(known_outside(0, ARRAY[p_ids[i]])) > 0 THEN
      RETURN QUERY SELECT i, false;
      CONTINUE;
    END IF;
    PERFORM place(v_job, 5::smallint, p_reasons[i], p_fingerprints[i], p_finished_ats[i]);
    PERFORM tell(v_queue, NULL, 5, 1);
    v_rooms[v_place] := v_rooms[v_place] - 1;
  END LOOP;
END $$;

-- Dead letters of a queue, or of all, by what they died of: the largest groups first. They are counted in the index.
-- queue, how many
CREATE FUNCTION groups(p_queue text, p_max int)
RETURNS TABLE (queue text, fingerprint bigint, jobs bigint, first_at bigint, last_at bigint, sample uuid) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_queue int := (SELECT q.id FROM queue q WHERE q.name = p_queue);
BEGIN
  -- The sample is looked up after the groups were chosen: for these, and not for all.
  RETURN QUERY SELECT g.name, g.fingerprint, g.jobs, g.first_at, g.last_at,
      (SELECT f.id FROM finished f WHERE f.queue = g.queue AND f.state = 5 AND f.fingerprint = g.fingerprint
        ORDER BY f.finished_at DESC, f.no DESC LIMIT 1)
    FROM (
      SELECT q.name, c.* FROM queue q CROSS JOIN LATERAL (
        SELECT f.queue, f.fingerprint, count(*) AS jobs, min(f.finished_at) AS first_at, max(f.finished_at) AS last_at FROM finished f
        WHERE f.queue = q.id AND f.state = 5 AND f.fingerprint IS NOT NULL GROUP BY f.queue, f.fingerprint) c
      WHERE p_queue IS NULL OR q.id = v_queue
      ORDER BY c.jobs DESC, c.last_at DESC, q.name, c.fingerprint LIMIT p_max) g
    ORDER BY g.jobs DESC, g.last_at DESC, g.name, g.fingerprint;
END $$;
-- Jobs by id, in this order; those that do not exist are left out. One whose queue is missing comes without its name.
CREATE FUNCTION jobs_by_id(p_ids uuid[])
RETURNS TABLE (id uuid, queue text, kind text, state smallint, payload bytea, level smallint, attempts int, lost int, requeues int,
  run_at bigint, inserted_at bigint, finished_at bigint, unique_key text, retry bytea, history bytea, reason text, worker text, until bigint,
  since bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_id uuid;
  v_lease bigint;
BEGIN
  FOREACH v_id IN ARRAY p_ids LOOP
    v_lease := (SELECT lease_of(j.queue, j.level, j.seq) FROM job j WHERE j.id = v_id);
    RETURN QUERY SELECT j.id, q.name, j.kind, CASE WHEN l.no IS NULL THEN 1 ELSE 2 END::smallint, j.payload, j.level, j.attempts, j.lost,
        j.requeues, j.run_at, j.inserted_at, NULL::bigint, j.unique_key, j.retry, j.history, NULL::text, l.worker, l.until, l.since
      FROM job j LEFT JOIN queue q ON q.id = j.queue LEFT JOIN lease l ON l.no = v_lease WHERE j.id = v_id;
    CONTINUE WHEN FOUND;
    RETURN QUERY SELECT w.id, q.name, w.kind, w.state, w.payload, w.level, w.attempts, w.lost, w.requeues, w.run_at, w.inserted_at,
        NULL::bigint, w.unique_key, w.retry, w.history, NULL::text, NULL::text, NULL::bigint, NULL::bigint
      FROM waiting w LEFT JOIN queue q ON q.id = w.queue WHERE w.id = v_id;
    CONTINUE WHEN FOUND;
    RETURN QUERY SELECT f.id, q.name, f.kind, f.state, f.payload, f.level, f.attempts, f.lost, f.requeues, f.run_at, f.inserted_at,
        f.finished_at, f.unique_key, f.retry, f.history, f.reason, NULL::text, NULL::bigint, NULL::bigint
      FROM finished f LEFT JOIN queue q ON q.id = f.queue WHERE f.id = v_id;
  END LOOP;
END $$;

-- Waiting jobs in one state by their time, behind a place.
-- place: time and number; how many rows to look at
CREATE FUNCTION list_waiting(p_at bigint, p_no bigint, p_looks int)
RETURNS TABLE (id uuid, queue int, kind text, state smallint, at bigint, no bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT w.id, w.queue, w.kind, w.state, w.run_at, w.no FROM waiting w
    WHERE (w.run_at, w.no) > (p_at, p_no) ORDER BY w.run_at, w.no LIMIT p_looks;
END $$;

-- Ready jobs of a queue in claim order, behind a place.
-- queue, place: level and seq; how many rows to look at
CREATE FUNCTION list_ready(p_queue int, p_level smallint, p_seq bigint, p_looks int)
RETURNS TABLE (id uuid, queue int, kind text, state smallint, level bigint, seq bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT j.id, j.queue, j.kind, CASE WHEN lease_of(j.queue, j.level, j.seq) IS NULL THEN 1 ELSE 2 END::smallint,
      j.level::bigint, j.seq FROM job j
    WHERE j.queue = p_queue AND (j.level, j.seq) > (p_level, p_seq) ORDER BY j.level, j.seq LIMIT p_looks;
END $$;

-- Ended jobs of a queue in one state behind a place, newest or oldest first; only those dead of one thing if so asked.
-- queue, state, fingerprint, whether oldest first, place: time and number; how many rows to look at
CREATE FUNCTION list_finished(p_queue int, p_state smallint, p_fingerprint bigint, p_oldest boolean, p_at bigint, p_no bigint, p_looks int)
RETURNS TABLE (id uuid, queue int, kind text, state smallint, at bigint, no bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF p_fingerprint IS NULL AND p_oldest THEN
    RETURN QUERY SELECT f.id, f.queue, f.kind, f.state, f.finished_at, f.no FROM finished f
      WHERE f.queue = p_queue AND f.state = p_state AND (f.finished_at, f.no) > (p_at, p_no)
      ORDER BY f.finished_at, f.no LIMIT p_looks;
  ELSIF p_fingerprint IS NULL THEN
    RETURN QUERY SELECT f.id, f.queue, f.kind, f.state, f.finished_at, f.no FROM finished f
      WHERE f.queue = p_queue AND f.state = p_state AND (f.finished_at, f.no) < (p_at, p_no)
      ORDER BY f.finished_at DESC, f.no DESC LIMIT p_looks;
  ELSIF p_oldest THEN
    RETURN QUERY SELECT f.id, f.queue, f.kind, f.state, f.finished_at, f.no FROM finished f
      WHERE f.queue = p_queue AND f.state = 5 AND f.fingerprint = p_fingerprint AND (f.finished_at, f.no) > (p_at, p_no)
      ORDER BY f.finished_at, f.no LIMIT p_looks;
  ELSE
    RETURN QUERY SELECT f.id, f.queue, f.kind, f.state, f.finished_at, f.no FROM finished f
      WHERE f.queue = p_queue AND f.state = 5 AND f.fingerprint = p_fingerprint AND (f.finished_at, f.no) < (p_at, p_no)
      ORDER BY f.finished_at DESC, f.no DESC LIMIT p_looks;
  END IF;
END $$;

-- Jobs newest first by arrival, before a number; only running ones, or only those dead of one thing, if so asked.
-- number, whether running ones only, fingerprint, how many rows to look at
CREATE FUNCTION list_arrivals(p_no bigint, p_running boolean, p_fingerprint bigint, p_looks int)
RETURNS TABLE (id uuid, queue int, kind text, state smallint, at bigint, no bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF p_fingerprint IS NOT NULL THEN
    RETURN QUERY SELECT f.id, f.queue, f.kind, f.state, 0::bigint, f.no FROM finished f
      WHERE f.fingerprint = p_fingerprint AND f.state = 5 AND f.no < p_no ORDER BY f.no DESC LIMIT p_looks;
    RETURN;
  END IF;
  IF p_running THEN
    RETURN QUERY SELECT j.id, j.queue, j.kind, 2::smallint, 0::bigint, j.no
      FROM lease l
      -- From the leases to their jobs, and never from all jobs by number to the leases.
      CROSS JOIN LATERAL (SELECT * FROM job j WHERE j.queue = l.queue AND j.level = l.level AND j.seq BETWEEN l.lo AND l.hi OFFSET 0) j
      WHERE (l.handed IS NULL OR l.handed @> j.seq) AND (l.given_back IS NULL OR NOT j.seq = ANY (l.given_back)) AND j.no < p_no
      ORDER BY j.no DESC LIMIT p_looks;
    RETURN;
  END IF;
  RETURN QUERY SELECT x.id, x.queue, x.kind, x.state, 0::bigint, x.no FROM (
      (SELECT j.id, j.queue, j.kind, 1::smallint AS state, j.no FROM job j WHERE j.no < p_no ORDER BY j.no DESC LIMIT p_looks)
      UNION ALL (SELECT w.id, w.queue, w.kind, w.state, w.no FROM waiting w WHERE w.no < p_no ORDER BY w.no DESC LIMIT p_looks)
      UNION ALL (SELECT f.id, f.queue, f.kind, f.state, f.no FROM finished f WHERE f.no < p_no ORDER BY f.no DESC LIMIT p_looks)) x
    ORDER BY x.no DESC LIMIT p_looks;
END $$;
-- All queues by name, with their counts, when the job that is claimed next was to run, and how much they hold.
CREATE FUNCTION queues()
RETURNS TABLE (name text, paused boolean, counts bigint[], totals bigint[], next_ready bigint, max_size bigint, overflow text,
  dead_max bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_from record;
BEGIN
  SELECT * INTO v_from FROM tallied_from(false);
  -- One statement: what is added up meanwhile is in one of the two.
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
    ARRAY[t.total_enqueued, t.total_done, t.total_dead, t.total_cancelled]::bigint[], next_ready(q.id),
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

-- Opens or pauses a queue, which is made if there is none.
CREATE FUNCTION set_gate(p_queue text, p_paused boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM queue_or_new(p_queue);
  UPDATE queue SET paused = p_paused WHERE name = p_queue AND paused <> p_paused;
END $$;

-- Sets how much a queue holds; it is made if there is none.
CREATE FUNCTION set_bounds(p_queue text, p_max_size bigint, p_overflow text, p_dead_max bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM queue_or_new(p_queue);
  UPDATE queue SET max_size = p_max_size, overflow = p_overflow, dead_max = p_dead_max WHERE name = p_queue;
END $$;

-- Workers seen since, by name, and how many jobs they hold.
CREATE FUNCTION workers(p_since bigint) RETURNS TABLE (name text, queues text, seen_at bigint, running bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  -- All leases once, and not once for each worker.
  RETURN QUERY
  WITH held AS MATERIALIZED (
    SELECT l.worker, count(*) AS jobs FROM lease l CROSS JOIN LATERAL (
      SELECT j.seq FROM job j WHERE j.queue = l.queue AND j.level = l.level AND j.seq BETWEEN l.lo AND l.hi OFFSET 0) j
    WHERE (l.handed IS NULL OR l.handed @> j.seq) AND (l.given_back IS NULL OR NOT j.seq = ANY (l.given_back)) GROUP BY l.worker
  )
  SELECT w.name, w.queues, w.seen_at, coalesce((SELECT h.jobs FROM held h WHERE h.worker = w.name), 0)
    FROM worker w WHERE w.seen_at >= p_since ORDER BY w.name;
END $$;

-- The queues by name; only the one of a name, if there is one to ask for.
CREATE FUNCTION queue_ids(p_name text) RETURNS TABLE (id int, name text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT q.id, q.name FROM queue q WHERE p_name IS NULL OR q.name = p_name ORDER BY q.name;
END $$;
-- Removes ended jobs whose time is over, queue by queue as named: done, cancelled, dead, oldest first; then keys whose job is gone
-- and whose period is over, and workers silent for long. Answers how many of each state, and whether there is more.
-- per queue: name, how long done ones stay, how many of them, how long cancelled ones, how long dead ones; in all at most so many,
-- workers last seen before, now; from when on to look: three per queue, and at keys. Answers also up to when nothing is left to remove,
-- three per queue: what was removed before is not walked over, however long it is kept alive.
CREATE FUNCTION prune(p_queues text[], p_done_for bigint[], p_done_max bigint[], p_cancelled_for bigint[], p_dead_for bigint[],
  p_max int, p_silent_since bigint, p_now bigint, p_froms bigint[], p_keys_from bigint)
RETURNS TABLE (done int, cancelled int, dead int, more boolean, upto bigint[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_queue int;
  v_left int := p_max;
  v_surplus bigint;
  v_gone int[] := '{0,0,0}';
  v_pruned record;
BEGIN
  done := 0;
  cancelled := 0;
  dead := 0;
  more := false;
  upto := array_fill(NULL::bigint, ARRAY[3 * cardinality(p_queues)]);
  -- Two at once would each remove what is too much. The other one does it.
  IF NOT pg_try_advisory_xact_lock(((ticket_tag() + 1)::bigint << 48) - 2) THEN
    RETURN NEXT;
    RETURN;
  END IF;
  PERFORM add_up(20000), add_up_streams(20000);
  FOR i IN 1 .. cardinality(p_queues) LOOP
    SELECT q.id INTO v_queue FROM queue q WHERE q.name = p_queues[i];
    CONTINUE WHEN NOT FOUND;
    v_surplus := (SELECT c.done FROM counted(v_queue) c) - p_done_max[i];
    FOR v_shelf IN 1 .. 3 LOOP
      SELECT * INTO v_pruned FROM prune_shelf(v_queue, (ARRAY[4, 6, 5])[v_shelf]::smallint,
        p_now - (ARRAY[p_done_for[i], p_cancelled_for[i], p_dead_for[i]])[v_shelf],
        CASE WHEN v_shelf = 1 THEN v_surplus ELSE 0 END, v_left, p_now, p_froms[3 * i - 3 + v_shelf]);
      upto[3 * i - 3 + v_shelf] := v_pruned.upto;
      v_gone[v_shelf] := v_gone[v_shelf] + v_pruned.gone;
      v_left := v_left - v_pruned.gone;
      more := more OR v_pruned.more;
    END LOOP;
  END LOOP;
  more := more OR forget_keys(p_max, p_now, p_keys_from);
  DELETE FROM worker w WHERE w.seen_at < p_silent_since;
  done := v_gone[1];
  cancelled := v_gone[2];
  dead := v_gone[3];
  RETURN NEXT;
END $$;

-- Removes the oldest jobs of one queue and state, from when on it is told to look: those that ended by then, and so many at least.
CREATE FUNCTION prune_shelf(p_queue int, p_state smallint, p_ended_by bigint, p_surplus bigint, p_max int, p_now bigint, p_from bigint,
  OUT gone int, OUT more boolean, OUT upto bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_row record;
BEGIN
  gone := 0;
  more := false;
  FOR v_row IN SELECT f.ctid AS at, f.finished_at, f.id, f.unique_key, f.unique_states, f.unique_until FROM finished f
    WHERE f.queue = p_queue AND f.state = p_state AND f.finished_at >= p_from ORDER BY f.finished_at, f.no LIMIT p_max + 1 FOR UPDATE
  LOOP
    upto := v_row.finished_at;
    EXIT WHEN gone >= p_surplus AND v_row.finished_at > p_ended_by;
    IF gone = p_max THEN more := true; EXIT; END IF;
    DELETE FROM finished WHERE ctid = v_row.at;
    PERFORM leave_key(p_queue, v_row.unique_key, v_row.id, v_row.unique_states, v_row.unique_until, p_state, p_now);
    gone := gone + 1;
  END LOOP;
  upto := coalesce(upto, p_ended_by);
  IF gone > 0 THEN PERFORM tell(p_queue, p_state, NULL, gone); END IF;
END $$;

-- Forgets keys that were left behind; answers whether there are more.
CREATE FUNCTION forget_keys(p_max int, p_now bigint, p_from bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_gone int;
BEGIN
  DELETE FROM key WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM key k WHERE k.forget_at BETWEEN p_from AND p_now ORDER BY k.forget_at LIMIT p_max FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_gone = ROW_COUNT;
  RETURN v_gone = p_max AND EXISTS (SELECT 1 FROM key k WHERE k.forget_at BETWEEN p_from AND p_now);
END $$;
-- The cells of these names: their numbers from 1 on; those that do not exist are left out.
CREATE FUNCTION cells(p_names text[]) RETURNS TABLE (at int, version bigint, value bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT u.o::int, c.version, c.value FROM unnest(p_names) WITH ORDINALITY u(name, o)
    CROSS JOIN LATERAL (SELECT c.version, c.value FROM cell c WHERE c.name = u.name OFFSET 0) c;
END $$;

-- The next cells from a name on, by the bytes of their names.
CREATE FUNCTION list_cells(p_from text, p_max int) RETURNS TABLE (name text, version bigint, value bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT c.name, c.version, c.value FROM cell c WHERE c.name >= p_from ORDER BY c.name LIMIT p_max;
END $$;

-- Changes cells one after the other, as `backstop_core::port::Swap::judge` says. Answers for those it did not: their number from 1 on
-- and what stands; no version where nothing does.
-- per change: name, the version seen, the version it gets, value
CREATE FUNCTION swap(p_names text[], p_seen bigint[], p_versions bigint[], p_values bytea[])
RETURNS TABLE (at int, version bigint, value bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_cell cell%ROWTYPE;
BEGIN
  -- In one order for everybody, so that nobody waits in a circle.
  PERFORM 1 FROM cell c WHERE c.name = ANY (p_names) ORDER BY c.name FOR UPDATE;
  FOR i IN 1 .. cardinality(p_names) LOOP
    LOOP
      SELECT * INTO v_cell FROM cell c WHERE c.name = p_names[i] FOR UPDATE;
      EXIT WHEN v_cell.version = p_versions[i] OR (NOT FOUND AND p_values[i] IS NULL);
      IF v_cell.version IS DISTINCT FROM p_seen[i] THEN
        RETURN QUERY SELECT i, v_cell.version, v_cell.value;
        EXIT;
      END IF;
      IF p_values[i] IS NULL THEN
        DELETE FROM cell c WHERE c.name = p_names[i];
      ELSIF p_seen[i] IS NOT NULL THEN
        UPDATE cell c SET version = p_versions[i], value = p_values[i] WHERE c.name = p_names[i];
      ELSE
        INSERT INTO cell (name, version, value) VALUES (p_names[i], p_versions[i], p_values[i]) ON CONFLICT (name) DO NOTHING;
        -- Somebody made it between the two statements: then there is one to look at.
        CONTINUE WHEN NOT FOUND;
      END IF;
      EXIT;
    END LOOP;
  END LOOP;
END $$;
-- Keys and records of streams are joined to what a call is about by `stream = ANY (ARRAY[…])`: the planner cannot but look them up one
-- by one, in the order of the call. With a plain `=` it walks the whole table instead if that was empty when the plan was made,
-- and keeps the plan: with 100,000 keys a take of 1,000 then lasts longer than anybody waits.

-- The stream of a name, made if there is none.
CREATE FUNCTION stream_or_new(p_name text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE v_stream int := (SELECT s.id FROM stream s WHERE s.name = p_name);
BEGIN
  IF v_stream IS NULL THEN
    INSERT INTO stream (name) VALUES (p_name) ON CONFLICT (name) DO NOTHING;
    v_stream := (SELECT s.id FROM stream s WHERE s.name = p_name);
  END IF;
  RETURN v_stream;
END $$;

-- Makes those of these keys that do not exist. In the order of their bytes, and before any other key is locked: everybody does it
-- like this, so that nobody waits in a circle.
CREATE FUNCTION new_stream_keys(p_stream int, p_keys text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_new int;
BEGIN
  INSERT INTO stream_key (stream, key)
    SELECT p_stream, u.key FROM unnest(p_keys) u(key)
    WHERE (SELECT 1 FROM stream_key k WHERE k.stream = p_stream AND k.key = u.key) IS NULL
    ON CONFLICT (stream, key) DO NOTHING;
  GET DIAGNOSTICS v_new = ROW_COUNT;
  PERFORM tell_stream(p_stream, -1, v_new);
END $$;

-- Counts something of a stream.
CREATE FUNCTION tell_stream(p_stream int, p_what int, p_number bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_number <> 0 THEN INSERT INTO stream_tally (stream, what, number) VALUES (p_stream, p_what, p_number); END IF;
END $$;

-- The changes of streams' counts that are not added up yet.
CREATE FUNCTION stream_tallied(p_xid xid8, p_pending xid8[]) RETURNS SETOF stream_tally LANGUAGE sql STABLE AS $$
  SELECT * FROM stream_tally WHERE xid >= p_xid UNION ALL SELECT * FROM stream_tally WHERE xid = ANY (p_pending) AND xid < p_xid
$$;

-- Adds up what was counted of streams, as `add_up` does.
CREATE FUNCTION add_up_streams(p_max int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_from record;
  v_snapshot pg_snapshot;
  v_late tid[];
  v_rows tid[];
  v_xid xid8;
BEGIN
  IF NOT pg_try_advisory_xact_lock(((ticket_tag() + 1)::bigint << 48) - 4) THEN RETURN; END IF;
  SELECT * INTO v_from FROM tallied_from(true);
  v_snapshot := pg_current_snapshot();
  v_late := ARRAY(SELECT t.ctid FROM stream_tally t WHERE t.xid = ANY (v_from.p_pending) AND t.xid < v_from.p_xid);
  SELECT array_agg(t.ctid), (array_agg(t.xid ORDER BY t.xid DESC))[1] INTO v_rows, v_xid
    FROM (SELECT t.ctid, t.xid FROM stream_tally t WHERE t.xid >= v_from.p_xid ORDER BY t.xid LIMIT p_max) t;
  IF v_rows IS NULL AND cardinality(v_late) = 0 THEN RETURN; END IF;
  IF coalesce(cardinality(v_rows), 0) < p_max THEN v_xid := pg_snapshot_xmax(v_snapshot); END IF;
  WITH told AS (
    DELETE FROM stream_tally WHERE ctid = ANY (v_late || v_rows) RETURNING *
  )
  INSERT INTO stream_total AS t
    SELECT stream, what, least(sum(number), 9223372036854775807) FROM told GROUP BY stream, what ORDER BY stream, what
  ON CONFLICT (stream, what) DO UPDATE SET
    number = least(t.number::numeric + excluded.number, 9223372036854775807);
  PERFORM added_to(true, v_from.p_step, v_xid, v_snapshot);
END $$;

-- A change met what it had not seen when it began, and is to be made again: the caller's next try finds it.
CREATE FUNCTION changed_meanwhile() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'keys of a stream changed meanwhile' USING ERRCODE = 'serialization_failure';
END $$;
-- Locks those of these keys that are under the lease named, and in a turn before the one named. Answers how many records each of
-- them keeps, and NULL for the others.
CREATE FUNCTION lock_current(p_streams int[], p_keys text[], p_numbers bigint[], p_turns bigint[]) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
  v_key record;
  v_kept int[] := array_fill(NULL::int, ARRAY[cardinality(p_keys)]);
BEGIN
  FOR v_key IN
    SELECT u.o, k.records FROM unnest(p_streams, p_keys, p_numbers, p_turns) WITH ORDINALITY u(stream, key, number, turn, o)
    JOIN stream_key k ON k.stream = ANY (ARRAY[u.stream]) AND k.key = u.key
    WHERE k.number = u.number AND k.turn < u.turn AND k.until IS NOT NULL FOR UPDATE OF k
  LOOP
    v_kept[v_key.o] := v_key.records;
  END LOOP;
  RETURN v_kept;
END $$;

-- Removes and adds records of locked keys: first what goes, then what stays; of a key that is cleared, all of them. Answers how many
-- each key keeps from now on. Keys that keep NULL are left alone.
-- per key: stream, key, what becomes of it, how many it keeps; then as in advance.sql
CREATE FUNCTION move_records(p_streams int[], p_keys text[], p_thens smallint[], p_kept int[], p_drop_of int[], p_drop_positions bigint[],
  p_hold_of int[], p_hold_positions bigint[], p_hold_steps bigint[], p_hold_tenants text[], p_hold_ats bigint[], p_hold_payloads bytea[])
RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
  v_kept int[] := drop_records(p_streams, p_keys, p_kept, p_drop_of, p_drop_positions);
BEGIN
  v_kept := hold_records(p_streams, p_keys, v_kept, p_hold_of, p_hold_positions, p_hold_steps, p_hold_tenants, p_hold_ats, p_hold_payloads);
  IF 2 = ANY (p_thens) THEN
    DELETE FROM stream_record r USING unnest(p_streams, p_keys, p_thens, v_kept) u(stream, key, next, kept)
      WHERE u.next = 2 AND u.kept > 0 AND r.stream = ANY (ARRAY[u.stream]) AND r.key = u.key;
    v_kept := ARRAY(SELECT CASE WHEN u.next = 2 AND u.kept > 0 THEN 0 ELSE u.kept END FROM unnest(p_thens, v_kept) u(next, kept));
  END IF;
  PERFORM tell_records(p_streams, p_kept, v_kept);
  RETURN v_kept;
END $$;

CREATE FUNCTION drop_records(p_streams int[], p_keys text[], p_kept int[], p_of int[], p_positions bigint[]) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE v_gone record;
BEGIN
  FOR v_gone IN WITH gone AS (
      DELETE FROM stream_record r USING unnest(p_of, p_positions) u(o, position)
      WHERE p_kept[u.o] IS NOT NULL AND r.stream = ANY (ARRAY[p_streams[u.o]])
        AND r.key = p_keys[u.o] AND r.position = u.position RETURNING u.o
    ) SELECT gone.o, count(*) AS records FROM gone GROUP BY gone.o
  LOOP
    p_kept[v_gone.o] := p_kept[v_gone.o] - v_gone.records;
  END LOOP;
  RETURN p_kept;
END $$;

CREATE FUNCTION hold_records(p_streams int[], p_keys text[], p_kept int[], p_of int[], p_positions bigint[], p_steps bigint[],
  p_tenants text[], p_ats bigint[], p_payloads bytea[]) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE v_held record;
BEGIN
  FOR v_held IN WITH there AS (
      -- One that was offered meanwhile is the same record: it was counted with this one.
      UPDATE stream_record r SET arrival = 0 FROM unnest(p_of, p_positions) u(o, position)
      WHERE p_kept[u.o] IS NOT NULL AND r.stream = ANY (ARRAY[p_streams[u.o]])
        AND r.key = p_keys[u.o] AND r.position = u.position RETURNING u.o
    ) SELECT x.o, sum(x.more) AS records FROM (SELECT o, -1 AS more FROM there UNION ALL SELECT o, 1 FROM unnest(p_of) o) x GROUP BY x.o
  LOOP
    p_kept[v_held.o] := p_kept[v_held.o] + v_held.records;
  END LOOP;
  INSERT INTO stream_record (position, step, at, arrival, stream, key, tenant, payload)
    SELECT u.position, u.step, u.at, 0, p_streams[u.o], p_keys[u.o], u.tenant, u.payload
    FROM unnest(p_of, p_positions, p_steps, p_tenants, p_ats, p_payloads) u(o, position, step, tenant, at, payload)
    WHERE p_kept[u.o] IS NOT NULL ON CONFLICT (stream, key, position) DO NOTHING;
  RETURN p_kept;
END $$;

-- Counts records and keys that keep some: per key how many it kept and how many it keeps; one with neither counts for nothing.
CREATE FUNCTION tell_records(p_streams int[], p_from int[], p_to int[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO stream_tally (stream, what, number)
    SELECT x.stream, w.what, CASE w.what WHEN -2 THEN x.holding ELSE x.records END FROM (
      SELECT u.stream, sum((u.more > 0)::int - (u.less > 0)::int) AS holding, sum(u.more - u.less) AS records
      FROM unnest(p_streams, p_from, p_to) u(stream, less, more) GROUP BY u.stream) x
    CROSS JOIN (VALUES (-2), (-3)) w(what) WHERE CASE w.what WHEN -2 THEN x.holding ELSE x.records END <> 0;
END $$;
-- Takes records in; answers for those that were not: their number from 1 on, and whether their key is full; otherwise one of their
-- position is kept already.
-- stream; keys by their bytes, none twice; then per record, none twice: which of them, position, step, tenant, payload; how many
-- a key holds, now, the last end of a lease that is believed
CREATE FUNCTION offer(p_stream text, p_keys text[], p_key_at int[], p_positions bigint[], p_steps bigint[], p_tenants text[],
  p_payloads bytea[], p_records_max int, p_now bigint, p_latest bigint)
RETURNS TABLE (at int, is_full boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_stream int := stream_or_new(p_stream);
  v_streams int[] := array_fill(v_stream, ARRAY[cardinality(p_keys)]);
  v_arrived bigint[];
  v_records int[];
  v_were int[];
  v_arrivals bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_positions)]);
  v_new record;
BEGIN
  v_done := new_stream_keys(v_stream, p_keys);
  SELECT array_agg(k.arrived), array_agg(k.records) INTO v_arrived, v_records FROM (
    SELECT k.arrived, k.records FROM unnest(v_streams, p_keys) u(stream, key)
    JOIN stream_key k ON k.stream = ANY (ARRAY[u.stream]) AND k.key = u.key FOR UPDATE OF k) k;
  IF v_arrived IS NULL OR cardinality(v_arrived) < cardinality(p_keys) THEN PERFORM changed_meanwhile(); END IF;
  v_were := v_records;
  FOR v_new IN
    SELECT u.o::int AS at, u.k FROM unnest(p_key_at, p_positions) WITH ORDINALITY u(k, position, o)
    WHERE (SELECT 1 FROM stream_record r WHERE r.stream = v_stream AND r.key = p_keys[u.k] AND r.position = u.position) IS NULL
  LOOP
    IF v_records[v_new.k] >= p_records_max THEN
      RETURN QUERY SELECT v_new.at, true;
      v_arrivals[v_new.at] := 0;
    ELSE
      v_records[v_new.k] := v_records[v_new.k] + 1;
      v_arrived[v_new.k] := v_arrived[v_new.k] + 1;
      v_arrivals[v_new.at] := v_arrived[v_new.k];
    END IF;
  END LOOP;
  RETURN QUERY SELECT u.o::int, false FROM unnest(v_arrivals) WITH ORDINALITY u(arrival, o) WHERE u.arrival IS NULL;
  INSERT INTO stream_record (position, step, at, arrival, stream, key, tenant, payload)
    SELECT u.position, u.step, p_now, u.arrival, v_stream, p_keys[u.k], u.tenant, u.payload
    FROM unnest(p_key_at, p_positions, p_steps, p_tenants, p_payloads, v_arrivals) u(k, position, step, tenant, payload, arrival)
    WHERE u.arrival > 0;
  UPDATE stream_key k SET arrived = u.arrived, records = u.records,
    due = least(k.due, CASE WHEN k.until BETWEEN p_now AND p_latest THEN k.until ELSE p_now END)
    FROM unnest(v_streams, p_keys, v_arrived, v_records) u(stream, key, arrived, records)
    WHERE k.stream = ANY (ARRAY[u.stream]) AND k.key = u.key AND u.records > k.records;
  PERFORM tell_records(v_streams, v_were, v_records);
END $$;
-- Puts keys under a lease: of those named, the ones that nobody has. Answers what is known of them, and which of them keep records and
-- how many. Rows are locked in the order of the names, which is the same for everybody, so that nobody waits in a circle.
-- stream; keys by their bytes, none twice; number, worker, end; whether also from under others' hands, whether because they are due;
-- now, the last end of a lease that is believed
CREATE FUNCTION lease_keys(p_stream int, p_keys text[], p_number bigint, p_worker text, p_until bigint, p_seize boolean, p_due boolean,
  p_now bigint, p_latest bigint,
  OUT keys text[], OUT watermarks bigint[], OUT standings bytea[], OUT arrived bigint[], OUT holding text[], OUT counts int[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  WITH taken AS (
    UPDATE stream_key k SET number = p_number, turn = 0, until = p_until, worker = p_worker,
      due = CASE WHEN k.records > 0 THEN p_until END, due_take = CASE WHEN p_due THEN p_number END
    FROM unnest(array_fill(p_stream, ARRAY[cardinality(p_keys)]), p_keys) u(stream, key)
    WHERE k.stream = ANY (ARRAY[u.stream]) AND k.key = u.key
      AND (k.until IS NULL OR k.number <> p_number AND (p_seize OR NOT k.until BETWEEN p_now AND p_latest))
    RETURNING k.key, k.watermark, k.standing, k.arrived, k.records
  ) SELECT array_agg(t.key), array_agg(t.watermark), array_agg(t.standing), array_agg(t.arrived),
      array_agg(t.key) FILTER (WHERE t.records > 0), array_agg(t.records) FILTER (WHERE t.records > 0)
    INTO keys, watermarks, standings, arrived, holding, counts FROM taken t;
END $$;

-- The records of keys, which must be locked: of each key the highest position, and those of the lowest positions, with the number of
-- their key from 1 on.
-- stream, keys, how many records of each
CREATE FUNCTION window_records(p_stream int, p_keys text[], p_window int, OUT highest bigint[], OUT record_of int[], OUT positions bigint[],
  OUT steps bigint[], OUT tenants text[], OUT ats bigint[], OUT arrivals bigint[], OUT payloads bytea[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF p_keys IS NULL THEN RETURN; END IF;
  highest := ARRAY(SELECT (SELECT r.position FROM stream_record r WHERE r.stream = p_stream AND r.key = u.key
    ORDER BY r.position DESC LIMIT 1) FROM unnest(p_keys) u(key));
  SELECT array_agg(u.o), array_agg(r.position), array_agg(r.step), array_agg(r.tenant), array_agg(r.at), array_agg(r.arrival),
      array_agg(r.payload) INTO record_of, positions, steps, tenants, ats, arrivals, payloads
    FROM unnest(p_keys) WITH ORDINALITY u(key, o) CROSS JOIN LATERAL (
      SELECT * FROM stream_record r WHERE r.stream = p_stream AND r.key = u.key ORDER BY r.position LIMIT p_window) r;
END $$;

-- How many bytes the records of keys are that a take brings along.
CREATE FUNCTION window_bytes(p_stream int, p_keys text[], p_window int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT coalesce(sum(octet_length(r.payload)), 0) FROM unnest(p_keys) u(key) CROSS JOIN LATERAL (
    SELECT r.payload FROM stream_record r WHERE r.stream = p_stream AND r.key = u.key ORDER BY r.position LIMIT p_window) r);
END $$;

-- Hands out keys by name; what is left of it, if this take was made before. Those that do not exist come into being. Answers one row:
-- per key what is known of it; which of them keep records; of these how many, the highest position and the lowest records.
-- The common case is one statement: all of them exist, and are free or somebody else's. Whatever else shows only afterwards, and is then
-- undone and done with more care. To look first took a sixth more of the server's time.
-- stream; number, worker, end; whether also from under others' hands; keys by their bytes, none twice; bytes of records after which
-- there are no more keys, how many records of each key; now, the last end of a lease that is believed
CREATE FUNCTION take(p_stream text, p_number bigint, p_worker text, p_until bigint, p_seize boolean, p_keys text[], p_bytes_max bigint,
  p_window int, p_now bigint, p_latest bigint)
RETURNS TABLE (keys text[], watermarks bigint[], standings bytea[], arrived bigint[], holding text[], counts int[], highest bigint[],
  record_of int[], positions bigint[], steps bigint[], tenants text[], ats bigint[], arrivals bigint[], payloads bytea[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_stream int := stream_or_new(p_stream);
  v_taken record;
  v_rest int;
BEGIN
  BEGIN
    SELECT * INTO v_taken FROM lease_keys(v_stream, p_keys, p_number, p_worker, p_until, p_seize, false, p_now, p_latest);
    v_rest := cardinality(p_keys) - coalesce(cardinality(v_taken.keys), 0);
    IF v_rest > 0 AND v_rest <> others_keys(v_stream, p_keys, p_number, p_seize, p_now, p_latest)
      OR v_taken.holding IS NOT NULL AND window_bytes(v_stream, v_taken.holding, p_window) > p_bytes_max
    THEN
      RAISE EXCEPTION 'not all of them as they are' USING ERRCODE = 'BS003';
    END IF;
  EXCEPTION WHEN SQLSTATE 'BS003' THEN
    -- A take that was made before brings no key back that was forgotten since.
    IF NOT EXISTS (SELECT FROM unnest(p_keys) u(key)
      CROSS JOIN LATERAL (SELECT k.number, k.until FROM stream_key k WHERE k.stream = v_stream AND k.key = u.key OFFSET 0) k
      WHERE k.until IS NOT NULL AND k.number = p_number)
    THEN
      PERFORM new_stream_keys(v_stream, p_keys);
    END IF;
    SELECT * INTO v_taken FROM lease_singly(v_stream, p_keys, p_number, p_worker, p_until, p_seize, p_bytes_max, p_window, p_now, p_latest);
  END;
  RETURN QUERY SELECT v_taken.keys, v_taken.watermarks, v_taken.standings, v_taken.arrived, v_taken.holding, v_taken.counts, w.*
    FROM window_records(v_stream, v_taken.holding, p_window) w;
END $$;

-- How many of these keys somebody else has, whoever asks under this number.
CREATE FUNCTION others_keys(p_stream int, p_keys text[], p_number bigint, p_seize boolean, p_now bigint, p_latest bigint)
RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT count(*) FROM unnest(p_keys) u(key)
    CROSS JOIN LATERAL (SELECT k.number, k.until FROM stream_key k WHERE k.stream = p_stream AND k.key = u.key OFFSET 0) k
    WHERE NOT p_seize AND k.number <> p_number AND k.until BETWEEN p_now AND p_latest);
END $$;

-- The keys that are under this number already; otherwise leases those that nobody has, until there is enough to carry. All of them must
-- exist then, and nobody touches one while they are looked at.
CREATE FUNCTION lease_singly(p_stream int, p_keys text[], p_number bigint, p_worker text, p_until bigint, p_seize boolean,
  p_bytes_max bigint, p_window int, p_now bigint, p_latest bigint,
  OUT keys text[], OUT watermarks bigint[], OUT standings bytea[], OUT arrived bigint[], OUT holding text[], OUT counts int[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_key record;
  v_met int := 0;
  v_mine text[] := '{}';
  v_free text[] := '{}';
  v_bytes bigint := 0;
BEGIN
  FOR v_key IN
    SELECT k.key, k.records, k.until IS NOT NULL AND k.number = p_number AS is_mine,
      k.until IS NULL OR p_seize OR NOT k.until BETWEEN p_now AND p_latest AS is_free
    FROM unnest(array_fill(p_stream, ARRAY[cardinality(p_keys)]), p_keys) u(stream, key)
    JOIN stream_key k ON k.stream = ANY (ARRAY[u.stream]) AND k.key = u.key FOR UPDATE OF k
  LOOP
    v_met := v_met + 1;
    IF v_key.is_mine THEN
      v_mine := v_mine || v_key.key;
    ELSIF v_key.is_free AND v_bytes <= p_bytes_max THEN
      v_free := v_free || v_key.key;
      IF v_key.records > 0 THEN v_bytes := v_bytes + window_bytes(p_stream, ARRAY[v_key.key], p_window); END IF;
    END IF;
  END LOOP;
  IF cardinality(v_mine) = 0 THEN
    IF v_met < cardinality(p_keys) THEN PERFORM changed_meanwhile(); END IF;
    SELECT * INTO keys, watermarks, standings, arrived, holding, counts
      FROM lease_keys(p_stream, v_free, p_number, p_worker, p_until, p_seize, false, p_now, p_latest);
  ELSE
    SELECT * INTO keys, watermarks, standings, arrived, holding, counts FROM known_keys(p_stream, v_mine);
  END IF;
END $$;

-- What is known of keys, which must be locked, as `lease_keys` says it.
CREATE FUNCTION known_keys(p_stream int, p_keys text[],
  OUT keys text[], OUT watermarks bigint[], OUT standings bytea[], OUT arrived bigint[], OUT holding text[], OUT counts int[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  SELECT array_agg(k.key), array_agg(k.watermark), array_agg(k.standing), array_agg(k.arrived),
      array_agg(k.key) FILTER (WHERE k.records > 0), array_agg(k.records) FILTER (WHERE k.records > 0)
    INTO keys, watermarks, standings, arrived, holding, counts
    FROM unnest(p_keys) u(key)
    CROSS JOIN LATERAL (SELECT * FROM stream_key k WHERE k.stream = p_stream AND k.key = u.key OFFSET 0) k;
END $$;

-- Hands out keys that are due, the longest due first; what is left of it, if this take was made before. Answers one row as `take`
-- does, and when the next key is due. Takes of what is due in one stream wait for each other, so that a repeated one finds the first;
-- they wait for nobody else: a key that somebody changes at this moment is passed over. Looks no further back than it is told to: what
-- was due before, and is kept alive by a long transaction, is not walked over.
-- stream; number, worker, end; how many keys, bytes of records after which there are no more, how many records of each key; now,
-- the last end of a lease that is believed, from when on
CREATE FUNCTION take_due(p_stream text, p_number bigint, p_worker text, p_until bigint, p_max int, p_bytes_max bigint, p_window int,
  p_now bigint, p_latest bigint, p_from bigint)
RETURNS TABLE (keys text[], watermarks bigint[], standings bytea[], arrived bigint[], holding text[], counts int[], highest bigint[],
  record_of int[], positions bigint[], steps bigint[], tenants text[], ats bigint[], arrivals bigint[], payloads bytea[], next_due bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_stream int := (SELECT s.id FROM stream s WHERE s.name = p_stream FOR UPDATE);
  v_mine text[] := ARRAY(SELECT k.key FROM stream_key k WHERE k.due_take = p_number AND k.stream + 0 = v_stream ORDER BY k.key FOR UPDATE);
  v_due text[] := '{}';
  v_key record;
  v_bytes bigint := 0;
  v_taken record;
BEGIN
  IF cardinality(v_mine) > 0 THEN
    SELECT * INTO v_taken FROM known_keys(v_stream, v_mine);
  ELSE
    FOR v_key IN
      SELECT k.key, k.records FROM stream_key k WHERE k.stream + 0 = v_stream AND k.due BETWEEN p_from AND p_now
        AND (k.until IS NULL OR NOT k.until BETWEEN p_now AND p_latest)
      ORDER BY k.due LIMIT p_max FOR UPDATE SKIP LOCKED
    LOOP
      EXIT WHEN v_bytes > p_bytes_max;
      v_due := v_due || v_key.key;
      IF v_key.records > 0 THEN v_bytes := v_bytes + window_bytes(v_stream, ARRAY[v_key.key], p_window); END IF;
    END LOOP;
    SELECT * INTO v_taken FROM lease_keys(v_stream, v_due, p_number, p_worker, p_until, false, true, p_now, p_latest);
  END IF;
  RETURN QUERY SELECT v_taken.keys, v_taken.watermarks, v_taken.standings, v_taken.arrived, v_taken.holding, v_taken.counts, w.*,
      (SELECT k.due FROM stream_key k WHERE k.stream + 0 = v_stream AND k.due >= p_from ORDER BY k.due LIMIT 1)
    FROM window_records(v_stream, v_taken.holding, p_window) w;
END $$;
-- Makes leases last longer; answers which of them are lost, by number from 1 on. The end of a lease follows
-- `backstop_core::lease::extended`.
-- stream names; then per lease, by stream and key, none twice: which of them, key, number; the new end, the last end that is not
-- cut short
CREATE FUNCTION keep(p_streams text[], p_stream_at int[], p_keys text[], p_numbers bigint[], p_until bigint, p_longest bigint)
RETURNS TABLE (lost int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_streams int[] := stream_ids(p_streams, p_stream_at);
BEGIN
  RETURN QUERY WITH kept AS (
    UPDATE stream_key k SET until = CASE WHEN k.until > p_longest THEN p_until ELSE greatest(k.until, p_until) END,
      due = CASE WHEN k.records > 0 THEN CASE WHEN k.until > p_longest THEN p_until ELSE greatest(k.until, p_until) END END
    FROM unnest(v_streams, p_keys, p_numbers) WITH ORDINALITY u(stream, key, number, o)
    WHERE k.stream = ANY (ARRAY[u.stream]) AND k.key = u.key AND k.number = u.number AND k.until IS NOT NULL RETURNING u.o
  ) SELECT o::int FROM generate_series(1, cardinality(p_keys)) o WHERE NOT o IN (SELECT kept.o FROM kept);
END $$;

-- The stream of each of some things, from the names of streams and which of these it is of; NULL where there is none.
CREATE FUNCTION stream_ids(p_streams text[], p_stream_at int[]) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE v_ids int[] := ARRAY(SELECT (SELECT s.id FROM stream s WHERE s.name = n) FROM unnest(p_streams) n);
BEGIN
  RETURN ARRAY(SELECT v_ids[a] FROM unnest(p_stream_at) a);
END $$;
-- Takes in what was decided about keys. Answers for those whose lease was not the current one: their number from 1 on and true;
-- and for those that are due now or at some time: their number and false.
-- stream names; then per decision, by stream and key, none twice: which of them, key, number, turn, how many had arrived, watermark,
-- standing, then (0 keep, 1 release, 2 clear), until or when, the last end that is not cut short; per count: decision, what, number;
-- per record that goes: decision, position; per record that stays: decision, position, step, tenant, time, payload; now
CREATE FUNCTION advance(p_streams text[], p_stream_at int[], p_keys text[], p_numbers bigint[], p_turns bigint[], p_seen bigint[],
  p_watermarks bigint[], p_standings bytea[], p_thens smallint[], p_times bigint[], p_longest bigint[],
  p_count_of int[], p_count_whats smallint[], p_count_numbers bigint[], p_drop_of int[], p_drop_positions bigint[],
  p_hold_of int[], p_hold_positions bigint[], p_hold_steps bigint[], p_hold_tenants text[], p_hold_ats bigint[], p_hold_payloads bytea[],
  p_now bigint)
RETURNS TABLE (at int, is_stale boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_streams int[] := stream_ids(p_streams, p_stream_at);
  v_kept int[] := '{}';
  v_applied int[];
  v_due int[];
BEGIN
  IF cardinality(p_drop_of) > 0 OR cardinality(p_hold_of) > 0 OR 2 = ANY (p_thens) THEN
    v_kept := lock_current(v_streams, p_keys, p_numbers, p_turns);
    v_kept := move_records(v_streams, p_keys, p_thens, v_kept, p_drop_of, p_drop_positions, p_hold_of, p_hold_positions, p_hold_steps,
      p_hold_tenants, p_hold_ats, p_hold_payloads);
  END IF;
  WITH applied AS (
    UPDATE stream_key k SET watermark = u.watermark, standing = u.standing, turn = u.turn, records = coalesce(u.kept, k.records),
      due_take = CASE WHEN u.next = 0 THEN k.due_take END, worker = CASE WHEN u.next = 0 THEN k.worker END,
      until = CASE WHEN u.next = 0 THEN CASE WHEN k.until > u.longest THEN u.time ELSE greatest(k.until, u.time) END END,
      due = CASE u.next
        WHEN 0 THEN CASE WHEN coalesce(u.kept, k.records) > 0 THEN
          CASE WHEN k.until > u.longest THEN u.time ELSE greatest(k.until, u.time) END END
        WHEN 1 THEN CASE WHEN k.arrived > u.seen THEN p_now ELSE u.time END END
    FROM unnest(v_streams, p_keys, p_numbers, p_turns, p_seen, p_watermarks, p_standings, p_thens, p_times, p_longest, v_kept)
      WITH ORDINALITY u(stream, key, number, turn, seen, watermark, standing, next, time, longest, kept, o)
    WHERE k.stream = ANY (ARRAY[u.stream]) AND k.key = u.key AND k.number = u.number AND k.turn < u.turn AND k.until IS NOT NULL
    RETURNING u.o::int AS o, u.next = 1 AND k.due IS NOT NULL AS is_due
  ) SELECT coalesce(array_agg(o), '{}'), array_agg(o) FILTER (WHERE is_due) INTO v_applied, v_due FROM applied;
  PERFORM count_applied(v_streams, v_applied, p_count_of, p_count_whats, p_count_numbers);
  IF 2 = ANY (p_thens) THEN PERFORM forget_stream_keys(v_streams, p_keys, p_thens, v_applied); END IF;
  RETURN QUERY SELECT o, false FROM unnest(v_due) o;
  IF cardinality(v_applied) < cardinality(p_keys) THEN
    RETURN QUERY SELECT s.o, true FROM stale_advances(v_streams, p_keys, p_numbers, p_turns, p_thens, v_applied) s(o);
  END IF;
END $$;

-- Counts what happened, for decisions that were taken in.
CREATE FUNCTION count_applied(p_streams int[], p_applied int[], p_count_of int[], p_whats smallint[], p_numbers bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO stream_tally (stream, what, number)
    SELECT x.stream, x.what, least(sum(x.number), 9223372036854775807) FROM (
      SELECT p_streams[u.o] AS stream, u.what, u.number FROM unnest(p_count_of, p_whats, p_numbers) u(o, what, number)
      WHERE cardinality(p_applied) = cardinality(p_streams) OR u.o IN (SELECT unnest(p_applied))) x
    GROUP BY x.stream, x.what;
END $$;

-- Those of some decisions that are not applied, and never were. A turn that was taken in before counts as applied, and so does the end
-- of a key that is not there.
CREATE FUNCTION stale_advances(p_streams int[], p_keys text[], p_numbers bigint[], p_turns bigint[], p_thens smallint[], p_applied int[])
RETURNS SETOF int LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT u.o::int FROM unnest(p_streams, p_keys, p_numbers, p_turns, p_thens)
      WITH ORDINALITY u(stream, key, number, turn, next, o)
    LEFT JOIN LATERAL (SELECT k.number, k.turn FROM stream_key k WHERE k.stream = u.stream AND k.key = u.key OFFSET 0) k ON true
    WHERE NOT u.o IN (SELECT unnest(p_applied))
      AND NOT CASE WHEN k.turn IS NULL THEN u.next = 2 ELSE coalesce(k.number = u.number, false) AND u.turn <= k.turn END;
END $$;

-- Removes keys that were cleared, if nothing of them is to be remembered.
CREATE FUNCTION forget_stream_keys(p_streams int[], p_keys text[], p_thens smallint[], p_applied int[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH gone AS (
    DELETE FROM stream_key k USING unnest(p_streams, p_keys, p_thens) WITH ORDINALITY u(stream, key, next, o)
    WHERE u.next = 2 AND u.o IN (SELECT unnest(p_applied)) AND k.stream = ANY (ARRAY[u.stream]) AND k.key = u.key
      AND k.watermark IS NULL AND k.standing = '' RETURNING k.stream
  ) INSERT INTO stream_tally (stream, what, number) SELECT stream, -1, -count(*) FROM gone GROUP BY stream;
END $$;
-- All streams by name: what was counted and how often, and when the oldest record came in.
CREATE FUNCTION streams() RETURNS TABLE (name text, whats smallint[], numbers bigint[], oldest bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_from record;
BEGIN
  SELECT * INTO v_from FROM tallied_from(true);
  RETURN QUERY
  WITH told AS (
    SELECT t.stream, t.what, greatest(least(sum(t.number), 9223372036854775807), 0)::bigint AS number
    FROM (SELECT stream, what, number FROM stream_total
      UNION ALL SELECT stream, what, number FROM stream_tallied(v_from.p_xid, v_from.p_pending)) t GROUP BY t.stream, t.what
  )
  SELECT s.name, array_agg(t.what), array_agg(t.number),
    (SELECT r.at FROM stream_record r WHERE r.stream + 0 = s.id ORDER BY r.at LIMIT 1)
  FROM stream s JOIN told t ON t.stream = s.id GROUP BY s.id, s.name ORDER BY s.name;
END $$;

-- The next keys of a stream behind one, by the bytes of their names; only those that keep records, if so asked. Fewer of them, but one at
-- least, if they keep so many records that to look at all of them takes long.
-- stream, the key before, whether only those that keep records, how many, how many records
CREATE FUNCTION list_stream_keys(p_stream text, p_after text, p_holding boolean, p_max int, p_records_max int)
RETURNS TABLE (key text, watermark bigint, standing bytea, records int, oldest bigint, due bigint, worker text, until bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_stream int := (SELECT s.id FROM stream s WHERE s.name = p_stream);
  v_keys text[];
BEGIN
  IF p_holding THEN
    v_keys := ARRAY(SELECT k.key FROM stream_key k WHERE k.stream + 0 = v_stream AND k.key > p_after AND k.records > 0 ORDER BY k.key LIMIT p_max);
  ELSE
    v_keys := ARRAY(SELECT k.key FROM stream_key k WHERE k.stream = v_stream AND k.key > p_after ORDER BY k.key LIMIT p_max);
  END IF;
  RETURN QUERY SELECT k.key, k.watermark, k.standing, k.records,
      (SELECT min(r.at) FROM stream_record r WHERE k.records > 0 AND r.stream = v_stream AND r.key = k.key), k.due, k.worker, k.until
    FROM (
      SELECT k.*, sum(k.records) OVER (ORDER BY u.o) - k.records AS before FROM unnest(v_keys) WITH ORDINALITY u(key, o)
      CROSS JOIN LATERAL (SELECT * FROM stream_key k WHERE k.stream = v_stream AND k.key = u.key OFFSET 0) k
      WHERE NOT p_holding OR k.records > 0 ORDER BY u.o) k
    WHERE k.before < p_records_max;
END $$;

-- One key, as `take` says it. In one statement: nothing is locked, and all of it is of one moment.
-- stream, key, how many records
CREATE FUNCTION read_stream_key(p_stream text, p_key text, p_window int)
RETURNS TABLE (keys text[], watermarks bigint[], standings bytea[], arrived bigint[], holding text[], counts int[], highest bigint[],
  record_of int[], positions bigint[], steps bigint[], tenants text[], ats bigint[], arrivals bigint[], payloads bytea[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_stream int := (SELECT s.id FROM stream s WHERE s.name = p_stream);
BEGIN
  RETURN QUERY SELECT ARRAY[k.key], ARRAY[k.watermark], ARRAY[k.standing], ARRAY[k.arrived], ARRAY[k.key], ARRAY[k.records],
      ARRAY[(SELECT r.position FROM stream_record r WHERE r.stream = v_stream AND r.key = p_key ORDER BY r.position DESC LIMIT 1)], w.*
    FROM stream_key k CROSS JOIN (
      SELECT array_agg(1), array_agg(r.position), array_agg(r.step), array_agg(r.tenant), array_agg(r.at), array_agg(r.arrival),
        array_agg(r.payload)
      FROM (SELECT * FROM stream_record r WHERE r.stream = v_stream AND r.key = p_key ORDER BY r.position LIMIT p_window) r) w
    WHERE k.stream = v_stream AND k.key = p_key;
END $$;
-- The next dead jobs of a queue behind a place, oldest first, and whether they have their fingerprint. Version 1 kept none.
-- queue, place: time and number; how many rows to look at
CREATE FUNCTION unprinted(p_queue int, p_at bigint, p_no bigint, p_looks int)
RETURNS TABLE (id uuid, reason text, history bytea, at bigint, no bigint, printed boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT f.id, f.reason, f.history, f.finished_at, f.no, f.fingerprint IS NOT NULL FROM finished f
    WHERE f.queue = p_queue AND f.state = 5 AND (f.finished_at, f.no) > (p_at, p_no)
    ORDER BY f.finished_at, f.no LIMIT p_looks;
END $$;

-- Gives dead jobs their fingerprints. One that came back to life, or died anew, meanwhile is left alone.
-- per job: id, fingerprint
CREATE FUNCTION print_dead(p_ids uuid[], p_fingerprints bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. cardinality(p_ids) LOOP
    UPDATE finished f SET fingerprint = p_fingerprints[i] WHERE f.id = p_ids[i] AND f.state = 5 AND f.fingerprint IS NULL;
  END LOOP;
END $$;
-- For every language that speaks SQL: takes one job in with the transaction around it, and answers its id; the id of the job that
-- holds the unique key, if one does. Times are the server's. Replaced and never dropped: users may build upon it.
CREATE OR REPLACE FUNCTION enqueue(queue text, kind text, payload json, run_at timestamptz DEFAULT NULL, priority text DEFAULT 'normal',
  unique_key text DEFAULT NULL, unique_for interval DEFAULT NULL, retry json DEFAULT NULL, id uuid DEFAULT gen_random_uuid())
RETURNS uuid LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  v_now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  v_level int := array_position(ARRAY['critical', 'high', 'normal', 'low'], priority) - 1;
  v_refused record;
BEGIN
  IF queue IS NULL OR queue !~ '^[A-Za-z0-9._-]{1,128}$' THEN
    RAISE EXCEPTION 'a queue name has 1 to 128 letters, digits, dots, dashes and underscores; this one is %', quote_nullable(left(queue, 128))
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF coalesce(octet_length(kind), 0) NOT BETWEEN 1 AND 256 THEN
    RAISE EXCEPTION 'a kind has 1 to 256 bytes' USING ERRCODE = 'invalid_parameter_value';
  ELSIF payload IS NULL THEN
    RAISE EXCEPTION 'a job has a payload; write ''null'' as JSON for one that says nothing' USING ERRCODE = 'invalid_parameter_value';
  ELSIF octet_length(payload::text) > 1048576 THEN
    RAISE EXCEPTION 'a payload is JSON of at most 1 MiB; keep what is larger elsewhere and name it here'
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF v_level IS NULL THEN
    RAISE EXCEPTION '% is not a priority; use critical, high, normal or low', quote_nullable(priority)
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF octet_length(unique_key) NOT BETWEEN 1 AND 512 THEN
    RAISE EXCEPTION 'a unique key has 1 to 512 bytes; hash what is longer' USING ERRCODE = 'invalid_parameter_value';
  -- The worker reads the rest, and would fall back to the policy of the queue without a word.
  ELSIF retry IS NOT NULL AND (json_typeof(retry) <> 'object' OR coalesce(retry ->> 'kind', '') NOT IN
      ('exponential', 'fibonacci', 'steps', 'progressive', 'constant', 'polynomial')) THEN
    RAISE EXCEPTION '% is not a retry policy; its kind is exponential, fibonacci, steps, progressive, constant or polynomial',
      quote_literal(left(retry::text, 128)) USING ERRCODE = 'invalid_parameter_value';
  ELSIF id IS NULL THEN
    RAISE EXCEPTION 'an id is a uuid; leave it out to have one made' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  SELECT e.holder, e.is_full INTO v_refused FROM enqueue_jobs(ARRAY[queue], ARRAY[1], ARRAY[v_now], ARRAY[id], ARRAY[v_level]::smallint[],
    ARRAY[kind], ARRAY[convert_to(payload::text, 'UTF8')], ARRAY[(extract(epoch FROM run_at) * 1000000)::bigint], ARRAY[unique_key],
    ARRAY[CASE WHEN unique_key IS NOT NULL THEN 15 END]::smallint[],
    ARRAY[v_now + (extract(epoch FROM unique_for) * 1000000)::bigint], ARRAY[convert_to(retry::text, 'UTF8')],
    unique_key IS NOT NULL, true) e WHERE e.at > 0;
  IF v_refused.is_full THEN
    RAISE EXCEPTION 'queue % is full', queue USING ERRCODE = 'BS002',
      HINT = 'Push again once workers have caught up, or raise the max_size of the queue.';
  END IF;
  RETURN coalesce(v_refused.holder, id);
END $$;
-- What everything here looked like when it was made, to find out whether somebody changed it.
CREATE TABLE shape (name text PRIMARY KEY, digest text NOT NULL);

-- What everything here looks like: tables by their columns and settings, indexes by their definition and whether they can be used,
-- functions by their text and settings, and whether they run as their owner.
CREATE FUNCTION shapes() RETURNS TABLE (name text, digest text) LANGUAGE sql STABLE AS $$
  SELECT 'table ' || c.relname, md5(concat(c.reloptions::text, (SELECT string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod),
      a.attnotnull), ',' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)))
    FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  UNION ALL
  SELECT 'index ' || c.relname, md5(concat(pg_get_indexdef(c.oid), i.indisvalid, i.indisready))
    FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid WHERE c.relnamespace = current_schema()::regnamespace
  UNION ALL
  SELECT 'function ' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')',
      md5(concat(p.prosrc, p.proconfig::text, p.prosecdef))
    FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
$$;

-- What is not as it was made: missing, changed or not ours.
CREATE FUNCTION drift() RETURNS TABLE (name text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT coalesce(made.name, found.name) FROM shape made FULL JOIN shapes() found USING (name)
    WHERE made.digest IS DISTINCT FROM found.digest ORDER BY 1;
END $$;
-- What can be called from outside takes its plans and its names from nobody's session: no statistics, no search_path and no setting
-- of a pooled connection can change what it does. The rest is called by these only.
DO $$
DECLARE
  v_function regprocedure;
  v_entry boolean;
BEGIN
  FOR v_function, v_entry IN
    SELECT p.oid::regprocedure, p.proname = ANY ('{enqueue,enqueue_jobs,claim,settle,beat,begin_runs,seize,promote,amend,pick,jobs_by_id,
      list_waiting,list_ready,list_finished,list_arrivals,queue_ids,queues,set_gate,set_bounds,workers,prune,drift,bury,groups,holders,cells,
      list_cells,swap,unprinted,print_dead,offer,take,take_due,keep,advance,streams,list_stream_keys,read_stream_key}'::text[])
    FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
  LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', v_function);
    CONTINUE WHEN NOT v_entry;
    EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp SET plan_cache_mode = force_generic_plan
      SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
      SET lock_timeout = ''4s''',
      v_function, current_schema());
  END LOOP;
END $$;
INSERT INTO version (number) VALUES (6); INSERT INTO shape SELECT * FROM shapes();
