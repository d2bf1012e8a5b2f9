-- Locks those of these keys that are leased under the given number and whose last turn is before
-- the given one. Returns how many records each of them holds, and NULL for the others.
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

-- Removes and adds held records of locked keys: first it drops, then it adds; of a cleared key it
-- drops all. Returns how many records each key holds from now on. Keys with NULL in `p_kept` are
-- left alone.
-- Parameters, per key: stream, key, what happens to it, how many records it holds; then as in
--   advance.sql.
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
      -- A record that was offered meanwhile is the same record: the decision has counted it
      -- already.
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

-- Adds to the counts of held records and of keys that hold some: per key how many it held before
-- and how many it holds now. NULL counts as none.
CREATE FUNCTION tell_records(p_streams int[], p_from int[], p_to int[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO stream_tally (stream, what, number)
    SELECT x.stream, w.what, CASE w.what WHEN -2 THEN x.holding ELSE x.records END FROM (
      SELECT u.stream, sum((u.more > 0)::int - (u.less > 0)::int) AS holding, sum(u.more - u.less) AS records
      FROM unnest(p_streams, p_from, p_to) u(stream, less, more) GROUP BY u.stream) x
    CROSS JOIN (VALUES (-2), (-3)) w(what) WHERE CASE w.what WHEN -2 THEN x.holding ELSE x.records END <> 0;
END $$;
