-- Makes leases last longer; answers which of them are lost, by number from 1 on. The end of a lease
-- follows `backstop_core::lease::extended`. stream names; then per lease, by stream and key, none
-- twice: which of them, key, number; the new end, the last end that is not cut short
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

-- The stream of each of some things, from the names of streams and which of these it is of; NULL
-- where there is none.
CREATE FUNCTION stream_ids(p_streams text[], p_stream_at int[]) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE v_ids int[] := ARRAY(SELECT (SELECT s.id FROM stream s WHERE s.name = n) FROM unnest(p_streams) n);
BEGIN
  RETURN ARRAY(SELECT v_ids[a] FROM unnest(p_stream_at) a);
END $$;
