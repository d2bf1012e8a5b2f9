-- The id of the queue with this name; makes the queue if there is none.
CREATE FUNCTION queue_or_new(p_name text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE v_queue int;
BEGIN
  SELECT q.id INTO v_queue FROM queue q WHERE q.name = p_name AND q.retired_at IS NULL;
  IF FOUND THEN RETURN v_queue; END IF;
  -- If another transaction is removing the retired queue right now, this update waits for it.
  UPDATE queue q SET retired_at = NULL, empty_since = NULL WHERE q.name = p_name RETURNING q.id INTO v_queue;
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

-- Returns the names that no queue has yet. Raises an error if there would be more than `p_max`
-- queues.
CREATE FUNCTION new_queues(p_names text[], p_max int) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE v_new text[] := ARRAY(SELECT DISTINCT n FROM unnest(p_names) n WHERE NOT EXISTS (SELECT FROM queue q WHERE q.name = n));
BEGIN
  IF cardinality(v_new) > 0 AND (SELECT count(*) FROM queue) + cardinality(v_new) > p_max THEN
    PERFORM refuse_queue(v_new[1], p_max);
  END IF;
  RETURN v_new;
END $$;

-- Raises an error if there are more than `p_max` queues now, which happens when concurrent calls
-- make queues. Calls count one after the other: each holds the lock until its transaction ends. So
-- a call counts last: one that counted first, and then waited for a name or a key, would block
-- every session that makes a queue.
CREATE FUNCTION check_queues(p_made text[], p_max int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(ticket_tag(), 1);
  -- A separate statement after the lock, so that its snapshot sees the queues that this call waited
  -- for.
  IF (SELECT count(*) FROM queue) > p_max THEN PERFORM refuse_queue(p_made[1], p_max); END IF;
END $$;

CREATE FUNCTION refuse_queue(p_name text, p_max int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'queue % is new, and the store already has % queues. Push to a queue that exists, or raise `max_queues` under `[store]`; nothing was enqueued',
    p_name, p_max USING ERRCODE = 'BS003';
END $$;

-- Whether a job of another queue has this id.
CREATE FUNCTION is_elsewhere(p_id uuid, p_queue text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_queue int := coalesce((SELECT q.id FROM queue q WHERE q.name = p_queue), -1);
BEGIN
  RETURN EXISTS (SELECT 1 FROM job j WHERE j.id = p_id AND j.queue + 0 <> v_queue)
    OR EXISTS (SELECT 1 FROM waiting w WHERE w.id = p_id AND w.queue + 0 <> v_queue)
    OR EXISTS (SELECT 1 FROM finished f WHERE f.id = p_id AND f.queue + 0 <> v_queue);
END $$;

-- Enqueues jobs. Returns a row for each job that was not enqueued: its index from 1 on, and who
-- holds its unique key, that its queue is full, or that another queue has its id; none of these if
-- its own queue already has the id. Returns a row for each queue that has a bound, too: its index
-- from -1 down.
--
-- Every job goes into `job` first, and on into `waiting` if its time is still to come: the unique
-- index on ids in `job` is where concurrent pushes of one id meet, whatever their times.
--
-- `p_singly`: the batch has unique keys, or has an id twice.
-- `p_careful`: the transaction may stay open for long. Such a call touches no row of a known id,
--   and does not take the lock of `check_queues`, so nobody waits for it. Several of them that
--   overlap may together exceed `p_max_queues`.
-- `p_lowest`, `p_highest`: given if all jobs are ready now and their ids were made within moments.
--   Hardly any other id lies between them, so one range look-up replaces one look-up per job.
--
-- Parameters: queue names; then per job: index of its queue, now, id, level, kind, payload, time,
--   unique key, the states in which the key is held, until when it is held, retry policy.
CREATE FUNCTION enqueue_jobs(p_queues text[], p_queue_at int[], p_nows bigint[], p_ids uuid[], p_levels smallint[], p_kinds text[],
  p_payloads bytea[], p_run_ats bigint[], p_keys text[], p_key_states smallint[], p_key_untils bigint[], p_retries bytea[],
  p_singly boolean, p_careful boolean, p_lowest uuid DEFAULT NULL, p_highest uuid DEFAULT NULL, p_max_queues int DEFAULT 10000)
RETURNS TABLE (at int, holder uuid, is_full boolean, is_conflict boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  -- NULL for a queue that is new or retired, or that has a bound.
  v_queues int[] := ARRAY(SELECT (SELECT q.id FROM queue q WHERE q.name = n AND q.max_size IS NULL AND q.retired_at IS NULL)
    FROM unnest(p_queues) n);
  v_done text;
  v_nos bigint[];
  v_in uuid[];
  v_late uuid[];
  v_known uuid[];
  v_met uuid[] := '{}';
  v_new text[] := '{}';
BEGIN
  v_done := see_others();
  IF p_careful THEN v_done := ticket(); ELSE v_done := single_ticket(); END IF;
  IF array_position(v_queues, NULL) IS NOT NULL THEN v_new := new_queues(p_queues, p_max_queues); END IF;
  IF array_position(v_queues, NULL) IS NOT NULL AND NOT p_singly AND cardinality(known_outside(2, p_ids)) = 0
    AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.name = ANY (p_queues) AND q.max_size IS NOT NULL)
  THEN
    -- No id is known, and some queues are new: make them here together with their jobs, so that the
    -- jobs need not be enqueued one by one.
    v_queues := ARRAY(SELECT queue_or_new(n) FROM unnest(p_queues) n);
  END IF;
  IF array_position(v_queues, NULL) IS NOT NULL THEN
    RETURN QUERY SELECT * FROM enqueue_bounded(p_queues, p_queue_at, p_nows, p_ids, p_levels, p_kinds, p_payloads, p_run_ats, p_keys,
      p_key_states, p_key_untils, p_retries);
    IF v_new <> '{}' AND NOT p_careful THEN PERFORM check_queues(v_new, p_max_queues); END IF;
    RETURN;
  END IF;
  IF p_singly THEN
    FOR i IN 1 .. cardinality(p_ids) LOOP
      RETURN QUERY SELECT i, e.holder, false, e.holder IS NULL AND is_elsewhere(p_ids[i], p_queues[p_queue_at[i]])
        FROM enqueue_one(p_queues[p_queue_at[i]], p_nows[i], p_ids[i], p_levels[i], p_kinds[i],
        p_payloads[i], p_run_ats[i], p_keys[i], p_key_states[i], p_key_untils[i], p_retries[i]) e;
    END LOOP;
    RETURN;
  END IF;
  IF p_lowest IS NOT NULL AND v_new = '{}' THEN
    BEGIN
      -- A separate subquery draws the places, because seq and no are one number. The arrays are
      -- read by subscript: PL/pgSQL keeps its arrays in expanded form, and an unnest of all of them
      -- first copied each into a tuple store of its own, which was a fifth of the insert.
      INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload, retry)
      SELECT s, s, coalesce(p_run_ats[o], p_nows[o]), p_nows[o], v_queues[p_queue_at[o]], 0, 0, 0, p_levels[o], p_ids[o], p_kinds[o],
        p_payloads[o], p_retries[o] FROM (SELECT nextval('line'), o FROM generate_series(1, cardinality(p_ids)) o) x(s, o);
      v_in := p_ids;
    EXCEPTION WHEN unique_violation THEN
      -- One of the ids is known. Leaving the block has rolled the rows back; the insert below skips
      -- known ids.
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
    RETURN QUERY SELECT o::int, NULL::uuid, false, is_elsewhere(i, p_queues[p_queue_at[o]]) FROM unnest(p_ids) WITH ORDINALITY u(i, o)
      WHERE v_in IS NULL OR i IN (SELECT unnest(v_known)) OR NOT i IN (SELECT unnest(v_in));
  ELSE
    INSERT INTO tally (queue, ready, total_enqueued)
      SELECT v_queues[a], count(*), count(*) FROM unnest(p_queue_at) a GROUP BY a;
  END IF;
  IF v_new <> '{}' AND NOT p_careful THEN PERFORM check_queues(v_new, p_max_queues); END IF;
END $$;

-- The same for queues some of which have a bound, job by job as `backstop_core::bounds` says.
-- Returns which queues have a bound, by index from -1 down: a push to them may have to wait for
-- other transactions.
CREATE FUNCTION enqueue_bounded(p_queues text[], p_queue_at int[], p_nows bigint[], p_ids uuid[], p_levels smallint[], p_kinds text[],
  p_payloads bytea[], p_run_ats bigint[], p_keys text[], p_key_states smallint[], p_key_untils bigint[], p_retries bytea[])
RETURNS TABLE (at int, holder uuid, is_full boolean, is_conflict boolean) LANGUAGE plpgsql AS $$
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
      -- If the id is known or the unique key is held, the job is refused anyway, and no older job
      -- has to give way.
      IF cardinality(known_outside(2, ARRAY[p_ids[i]])) = 0 AND key_holder(v_queue, p_keys[i], p_nows[i]) IS NULL THEN
        IF v_spares[a] IS NULL THEN
          SELECT * INTO v_spare FROM spare(v_queue);
          v_spares[a] := v_spare.jobs;
          v_states[a] := v_spare.state;
        END IF;
        IF v_spares[a] <= 0 OR NOT give_way(v_queue, v_states[a], p_nows[i]) THEN
          RETURN QUERY SELECT i, NULL::uuid, true, false;
          CONTINUE;
        END IF;
        v_spares[a] := v_spares[a] - 1;
      END IF;
    END IF;
    RETURN QUERY SELECT i, e.holder, false, e.holder IS NULL AND is_elsewhere(p_ids[i], p_queues[a]) FROM enqueue_one(p_queues[a], p_nows[i], p_ids[i], p_levels[i], p_kinds[i], p_payloads[i],
      p_run_ats[i], p_keys[i], p_key_states[i], p_key_untils[i], p_retries[i]) e;
    IF NOT FOUND AND v_rooms[a] > 0 THEN v_rooms[a] := v_rooms[a] - 1; END IF;
  END LOOP;
  RETURN QUERY SELECT -o, NULL::uuid, false, false FROM generate_subscripts(v_rooms, 1) o WHERE v_rooms[o] IS NOT NULL;
END $$;

-- Moves jobs of this transaction from `job` to `waiting`: their time is still to come.
CREATE FUNCTION postpone(p_ids uuid[]) RETURNS void LANGUAGE sql AS $$
  WITH late AS (DELETE FROM job WHERE id = ANY (p_ids) RETURNING *)
  INSERT INTO waiting (run_at, no, inserted_at, queue, attempts, lost, requeues, level, state, id, kind, payload, unique_key,
    unique_states, unique_until, retry)
  SELECT run_at, no, inserted_at, queue, attempts, lost, requeues, level, 0, id, kind, payload, unique_key, unique_states,
    unique_until, retry FROM late
$$;

-- Enqueues one job. Returns one row if it was refused, with the holder of its unique key if that is
-- the reason.
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
      -- The holder is this very job: its first push committed while this repeated one waited for
      -- the key.
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
    -- The id is known after all: remove both the row and the key of this push.
    DELETE FROM job WHERE id = p_id AND no = v_no;
    DELETE FROM key WHERE queue = v_queue AND key = p_key AND id = p_id;
    RETURN QUERY SELECT NULL::uuid;
    RETURN;
  END IF;
  IF v_waits THEN PERFORM postpone(ARRAY[p_id]); END IF;
  PERFORM tell(v_queue, NULL, CASE WHEN v_waits THEN 0 ELSE 1 END, 1);
END $$;
