-- All streams by name, with their counts and the time at which the oldest held record arrived.
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

-- The next keys of a stream behind `p_after`, by the bytes of their names; with `p_holding`, only
-- keys that hold records. Returns fewer keys, but at least one, if they hold so many records that
-- reading all of them takes long.
-- Parameters: stream, the key to start behind, whether only keys that hold records, how many keys,
--   how many records.
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

-- One key, in the columns of `take`. It is a single statement, so it locks nothing and reads one
-- snapshot.
-- Parameters: stream, key, how many records, after how many bytes of payload no further record.
CREATE FUNCTION read_stream_key(p_stream text, p_key text, p_window int, p_bytes int)
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
      FROM (SELECT r.*, sum(octet_length(r.payload)) OVER (ORDER BY r.position)
            - octet_length(r.payload) AS before
        FROM (SELECT * FROM stream_record r WHERE r.stream = v_stream AND r.key = p_key
          ORDER BY r.position LIMIT p_window) r) r
      WHERE r.before < p_bytes) w
    WHERE k.stream = v_stream AND k.key = p_key;
END $$;
