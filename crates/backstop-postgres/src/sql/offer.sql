-- Stores records for their keys. Returns a row for each that was refused: its index from 1 on, and
-- whether its key is full; if it is not, the key already holds a record of that position.
-- Parameters: stream; keys by their bytes, none twice; then per record, none twice: index of its
--   key, position, step, tenant, payload; how many records a key may hold, now, the latest lease
--   end that is plausible.
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
