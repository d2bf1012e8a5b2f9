-- Queries join keys and records of streams to their arguments by `stream = ANY (ARRAY[…])`: this
-- makes the planner look them up one by one, in the order of the call. With a plain `=` it walks
-- the whole table instead if that was empty when the plan was made, and keeps the plan: with
-- 100,000 keys a take of 1,000 then lasts longer than any caller waits.

-- The id of the stream with this name; makes the stream if there is none.
CREATE FUNCTION stream_or_new(p_name text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE v_stream int := (SELECT s.id FROM stream s WHERE s.name = p_name);
BEGIN
  IF v_stream IS NULL THEN
    INSERT INTO stream (name) VALUES (p_name) ON CONFLICT (name) DO NOTHING;
    v_stream := (SELECT s.id FROM stream s WHERE s.name = p_name);
  END IF;
  RETURN v_stream;
END $$;

-- Makes those of these keys that do not exist, in the order of their bytes, and before it locks any
-- other key. All sessions do it in this order, so that they cannot deadlock.
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

-- Adds to a count of a stream.
CREATE FUNCTION tell_stream(p_stream int, p_what int, p_number bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_number <> 0 THEN INSERT INTO stream_tally (stream, what, number) VALUES (p_stream, p_what, p_number); END IF;
END $$;

-- The changes of counts of streams that are not added up yet.
CREATE FUNCTION stream_tallied(p_xid xid8, p_pending xid8[]) RETURNS SETOF stream_tally LANGUAGE sql STABLE AS $$
  SELECT * FROM stream_tally WHERE xid >= p_xid UNION ALL SELECT * FROM stream_tally WHERE xid = ANY (p_pending) AND xid < p_xid
$$;

-- Adds up the counts of streams, as `add_up` does for jobs.
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

-- Raises an error because a concurrent transaction added or removed keys after this call began. The
-- caller retries, and then sees them.
CREATE FUNCTION changed_meanwhile() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'keys of a stream changed meanwhile' USING ERRCODE = 'serialization_failure';
END $$;
