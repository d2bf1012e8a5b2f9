-- Applies decisions about keys. Returns a row for each decision whose lease was not the current
-- one: its index from 1 on and true. Returns a row for each released key that is due now or later:
-- its index and false.
-- Parameters: stream names; then per decision, by stream and key, none twice: index of its stream,
--   key, lease number, turn, how many records had arrived, watermark, standing (the state of the
--   key), then (0 keep, 1 release, 2 clear), new lease end or due time, the last end that is not
--   cut short; per count: index of its decision, what, number; per record to drop: index of its
--   decision, position; per record to hold: index of its decision, position, step, tenant, time,
--   payload; now.
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

-- Adds the counts of those decisions that were applied.
CREATE FUNCTION count_applied(p_streams int[], p_applied int[], p_count_of int[], p_whats smallint[], p_numbers bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO stream_tally (stream, what, number)
    SELECT x.stream, x.what, least(sum(x.number), 9223372036854775807) FROM (
      SELECT p_streams[u.o] AS stream, u.what, u.number FROM unnest(p_count_of, p_whats, p_numbers) u(o, what, number)
      WHERE cardinality(p_applied) = cardinality(p_streams) OR u.o IN (SELECT unnest(p_applied))) x
    GROUP BY x.stream, x.what;
END $$;

-- The decisions that are not applied now and were not applied before. A turn that was applied
-- before counts as applied, and so does clearing a key that does not exist.
CREATE FUNCTION stale_advances(p_streams int[], p_keys text[], p_numbers bigint[], p_turns bigint[], p_thens smallint[], p_applied int[])
RETURNS SETOF int LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT u.o::int FROM unnest(p_streams, p_keys, p_numbers, p_turns, p_thens)
      WITH ORDINALITY u(stream, key, number, turn, next, o)
    LEFT JOIN LATERAL (SELECT k.number, k.turn FROM stream_key k WHERE k.stream = u.stream AND k.key = u.key OFFSET 0) k ON true
    WHERE NOT u.o IN (SELECT unnest(p_applied))
      AND NOT CASE WHEN k.turn IS NULL THEN u.next = 2 ELSE coalesce(k.number = u.number, false) AND u.turn <= k.turn END;
END $$;

-- Removes cleared keys that have neither a watermark nor a state.
CREATE FUNCTION forget_stream_keys(p_streams int[], p_keys text[], p_thens smallint[], p_applied int[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH gone AS (
    DELETE FROM stream_key k USING unnest(p_streams, p_keys, p_thens) WITH ORDINALITY u(stream, key, next, o)
    WHERE u.next = 2 AND u.o IN (SELECT unnest(p_applied)) AND k.stream = ANY (ARRAY[u.stream]) AND k.key = u.key
      AND k.watermark IS NULL AND k.standing = '' RETURNING k.stream
  ) INSERT INTO stream_tally (stream, what, number) SELECT stream, -1, -count(*) FROM gone GROUP BY stream;
END $$;
