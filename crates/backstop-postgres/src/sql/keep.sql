-- Extends leases of keys. Returns which of them are lost, by index from 1 on. The new end of a
-- lease follows `backstop_core::lease::extend_lease`.
-- Parameters: stream names; then per lease, by stream and key, none twice: index of its stream,
--   key, lease number; the new end, the last end that is not cut short.
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

-- The stream id of each item, from stream names and the index of each item's stream; NULL where the
-- stream does not exist.
CREATE FUNCTION stream_ids(p_streams text[], p_stream_at int[]) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE v_ids int[] := ARRAY(SELECT (SELECT s.id FROM stream s WHERE s.name = n) FROM unnest(p_streams) n);
BEGIN
  RETURN ARRAY(SELECT v_ids[a] FROM unnest(p_stream_at) a);
END $$;
