-- Leases those of these keys that nobody else has. Returns their state, and which of them hold
-- records and how many. Rows are locked in the order of the names, which is the same for all
-- sessions, so that they cannot deadlock.
-- Parameters: stream; keys by their bytes, none twice; lease number, worker, end; whether to take
--   keys from other workers as well, whether the keys are taken because they are due; now, the
--   latest lease end that is plausible.
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

-- The held records of locked keys: of each key the highest position, and the records with the
-- lowest positions, with the index of their key from 1 on.
-- Parameters: stream, keys, how many records of each key.
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

-- How many bytes of payload a take of these keys returns.
CREATE FUNCTION window_bytes(p_stream int, p_keys text[], p_window int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT coalesce(sum(octet_length(r.payload)), 0) FROM unnest(p_keys) u(key) CROSS JOIN LATERAL (
    SELECT r.payload FROM stream_record r WHERE r.stream = p_stream AND r.key = u.key ORDER BY r.position LIMIT p_window) r);
END $$;

-- Leases keys by name. A repeated take returns those keys of the first call that are still leased
-- under its number. Keys that do not exist are made. Returns one row: the state of each key; which
-- of them hold records; of these how many, the highest position and the lowest records.
--
-- The common case is one statement: all keys exist, and each is free or another worker's. Any other
-- case shows only afterwards; the call then rolls back, and takes the keys with more care. A check
-- before the statement took a sixth more of the server's time.
--
-- Parameters: stream; lease number, worker, end; whether to take keys from other workers as well;
--   keys by their bytes, none twice; after how many bytes of records no further key is taken, how
--   many records of each key; now, the latest lease end that is plausible.
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
      RAISE EXCEPTION 'not all of them as they are' USING ERRCODE = 'BS005';
    END IF;
  EXCEPTION WHEN SQLSTATE 'BS005' THEN
    -- A repeated take makes no key anew that was removed since.
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

-- How many of these keys other workers have.
CREATE FUNCTION others_keys(p_stream int, p_keys text[], p_number bigint, p_seize boolean, p_now bigint, p_latest bigint)
RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT count(*) FROM unnest(p_keys) u(key)
    CROSS JOIN LATERAL (SELECT k.number, k.until FROM stream_key k WHERE k.stream = p_stream AND k.key = u.key OFFSET 0) k
    WHERE NOT p_seize AND k.number <> p_number AND k.until BETWEEN p_now AND p_latest);
END $$;

-- Returns the keys that are leased under this number already. If there are none, leases those that
-- nobody has, until their records reach `p_bytes_max`. All keys must exist then, and they stay
-- locked while they are read.
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

-- The state of locked keys, in the columns of `lease_keys`.
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

-- Leases keys that are due, the longest due first. A repeated take returns those keys of the first
-- call that are still leased under its number. Returns one row as `take` does, and when the next
-- key is due. Takes of due keys of one stream run one after the other, so that a repeated one finds
-- the keys of the first. They wait for nothing else: a key that another session is changing is
-- skipped. The search starts at `p_from`, so that it does not walk over the dead tuples of keys
-- that were due earlier, which a long transaction may keep.
-- Parameters: stream; lease number, worker, end; how many keys, after how many bytes of records no
--   further key is taken, how many records of each key; now, the latest lease end that is
--   plausible, where the search starts.
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
