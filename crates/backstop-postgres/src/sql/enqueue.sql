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
    INSERT INTO swept (queue, at, swept_at, pending) VALUES (v_queue, '{0,0,0,0}', 0, '{}');
    INSERT INTO total (queue) VALUES (v_queue);
  END IF;
  RETURN v_queue;
END $$;

-- Takes jobs in; answers for those that were not: their number from 1 on, and who holds their key; NULL if their id is known.
-- A plain job goes into `job`, one with a time into `waiting`, even if that time has come: there every repetition of it meets
-- the first. `p_singly` is for batches with keys, or with an id twice.
-- queue names; then per job: which of them, now, id, level, kind, payload, time, key, its states, its end, policy
CREATE FUNCTION enqueue_jobs(p_queues text[], p_queue_at int[], p_nows bigint[], p_ids uuid[], p_levels smallint[], p_kinds text[],
  p_payloads bytea[], p_run_ats bigint[], p_keys text[], p_key_states smallint[], p_key_untils bigint[], p_retries bytea[],
  p_singly boolean)
RETURNS TABLE (at int, holder uuid) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_queues int[] := ARRAY(SELECT (SELECT q.id FROM queue q WHERE q.name = n) FROM unnest(p_queues) WITH ORDINALITY u(n, o) ORDER BY o);
  v_nos bigint[];
  v_in uuid[];
  v_known uuid[];
BEGIN
  PERFORM ticket();
  IF p_singly OR array_position(v_queues, NULL) IS NOT NULL THEN
    FOR i IN 1 .. cardinality(p_ids) LOOP
      RETURN QUERY SELECT i, e.holder FROM enqueue_one(p_queues[p_queue_at[i]], p_nows[i], p_ids[i], p_levels[i], p_kinds[i],
        p_payloads[i], p_run_ats[i], p_keys[i], p_key_states[i], p_key_untils[i], p_retries[i]) e;
    END LOOP;
    RETURN;
  END IF;
  v_nos := ARRAY(SELECT nextval('line') FROM generate_series(1, cardinality(p_ids)));
  WITH placed AS (
    INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload, retry)
    SELECT s, s, n, n, v_queues[a], 0, 0, 0, l, i, k, p, r
    FROM unnest(v_nos, p_queue_at, p_nows, p_ids, p_levels, p_kinds, p_payloads, p_run_ats, p_retries) u(s, a, n, i, l, k, p, t, r)
    WHERE t IS NULL
    ON CONFLICT (id) DO NOTHING RETURNING id
  ) SELECT array_agg(id) INTO v_in FROM placed;
  v_known := known_outside(0, v_in);
  IF cardinality(v_known) > 0 THEN DELETE FROM job WHERE id = ANY (v_known); END IF;
  IF cardinality(v_known) > 0 OR coalesce(cardinality(v_in), 0) < cardinality(p_ids) THEN
    INSERT INTO tally (queue, ready, total_enqueued)
      SELECT queue, count(*), count(*) FROM job WHERE id = ANY (v_in) GROUP BY queue;
    v_known := v_known || enqueue_timed(v_nos, v_queues, p_queue_at, p_nows, p_ids, p_levels, p_kinds, p_payloads, p_run_ats, p_retries);
    RETURN QUERY SELECT o::int, NULL::uuid FROM unnest(p_ids, p_run_ats) WITH ORDINALITY u(i, t, o)
      WHERE i IN (SELECT unnest(v_known)) OR (t IS NULL AND NOT i IN (SELECT unnest(v_in)));
  ELSE
    INSERT INTO tally (queue, ready, total_enqueued)
      SELECT v_queues[a], count(*), count(*) FROM unnest(p_queue_at) a GROUP BY a;
  END IF;
END $$;

-- The jobs with a time of a batch; answers whose ids are known.
CREATE FUNCTION enqueue_timed(p_nos bigint[], p_queues int[], p_queue_at int[], p_nows bigint[], p_ids uuid[], p_levels smallint[],
  p_kinds text[], p_payloads bytea[], p_run_ats bigint[], p_retries bytea[])
RETURNS uuid[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_in uuid[];
  v_due uuid[];
  v_known uuid[];
BEGIN
  IF NOT EXISTS (SELECT 1 FROM unnest(p_run_ats) t WHERE t IS NOT NULL) THEN RETURN '{}'; END IF;
  WITH placed AS (
    INSERT INTO waiting (run_at, no, inserted_at, queue, attempts, lost, requeues, level, state, id, kind, payload, retry)
    SELECT t, s, n, p_queues[a], 0, 0, 0, l, 0, i, k, p, r
    FROM unnest(p_nos, p_queue_at, p_nows, p_ids, p_levels, p_kinds, p_payloads, p_run_ats, p_retries) u(s, a, n, i, l, k, p, t, r)
    WHERE t IS NOT NULL
    ON CONFLICT (id) DO NOTHING RETURNING id
  ) SELECT array_agg(id) INTO v_in FROM placed;
  v_known := known_outside(1, v_in);
  IF cardinality(v_known) > 0 THEN DELETE FROM waiting WHERE id = ANY (v_known); END IF;
  v_due := ARRAY(SELECT i FROM unnest(p_ids, p_nows, p_run_ats) u(i, n, t)
    WHERE t <= n AND i IN (SELECT unnest(v_in)) AND NOT i IN (SELECT unnest(v_known)));
  INSERT INTO tally (queue, scheduled, ready, total_enqueued)
    SELECT w.queue, count(*) FILTER (WHERE NOT w.is_due), count(*) FILTER (WHERE w.is_due), count(*)
    FROM (SELECT queue, id IN (SELECT unnest(v_due)) AS is_due FROM waiting WHERE id = ANY (v_in)) w GROUP BY w.queue;
  IF cardinality(v_due) > 0 THEN PERFORM make_ready(v_due); END IF;
  RETURN v_known || ARRAY(SELECT i FROM unnest(p_ids, p_run_ats) u(i, t) WHERE t IS NOT NULL AND NOT i IN (SELECT unnest(v_in)));
END $$;

-- Moves jobs of this very transaction into line, at the places they were numbered with: nobody has passed these unseen.
CREATE FUNCTION make_ready(p_ids uuid[]) RETURNS void LANGUAGE sql AS $$
  WITH due AS (DELETE FROM waiting WHERE id = ANY (p_ids) RETURNING *)
  INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload, unique_key,
    unique_states, unique_until, retry)
  SELECT no, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload, unique_key, unique_states,
    unique_until, retry FROM due
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
    IF holder IS NOT NULL THEN RETURN NEXT; RETURN; END IF;
  END IF;
  v_no := nextval('line');
  IF p_run_at IS NULL THEN
    INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload, unique_key,
      unique_states, unique_until, retry)
    VALUES (v_no, v_no, p_now, p_now, v_queue, 0, 0, 0, p_level, p_id, p_kind, p_payload, p_key, p_key_states, p_key_until, p_retry)
    ON CONFLICT (id) DO NOTHING;
  ELSE
    INSERT INTO waiting (run_at, no, inserted_at, queue, attempts, lost, requeues, level, state, id, kind, payload, unique_key,
      unique_states, unique_until, retry)
    VALUES (p_run_at, v_no, p_now, v_queue, 0, 0, 0, p_level, 0, p_id, p_kind, p_payload, p_key, p_key_states, p_key_until, p_retry)
    ON CONFLICT (id) DO NOTHING;
  END IF;
  IF NOT FOUND THEN RETURN QUERY SELECT NULL::uuid; RETURN; END IF;
  IF cardinality(known_outside((p_run_at IS NOT NULL)::int, ARRAY[p_id])) > 0 THEN
    DELETE FROM job WHERE id = p_id AND p_run_at IS NULL;
    DELETE FROM waiting WHERE id = p_id AND p_run_at IS NOT NULL AND no = v_no;
    RETURN QUERY SELECT NULL::uuid;
    RETURN;
  END IF;
  IF p_run_at IS NOT NULL AND NOT v_waits THEN PERFORM make_ready(ARRAY[p_id]); END IF;
  PERFORM tell(v_queue, NULL, CASE WHEN v_waits THEN 0 ELSE 1 END, 1);
END $$;
