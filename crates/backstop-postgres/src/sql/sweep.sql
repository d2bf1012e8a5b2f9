-- Looks for late jobs: a place is drawn before its transaction commits, and the cursor may have passed it by then. Answers how
-- many it found; they are claimed from `returned`. The queue must be locked.
--
-- A late job belongs to a transaction that drew its places before the cursor passed them. Such a transaction either was under
-- way at the sweep before this one, or began after it: then its places are behind that sweep's cursor. So it is enough to look
-- behind the last sweep's cursor, and behind the places of those transactions that were under way then and are not any more.
-- One that takes for ever costs nothing until it ends. The lock of a transaction is seen until its rows are.
CREATE FUNCTION sweep(p_queue int, p_at bigint[], p_now bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  v_last swept%ROWTYPE;
  v_pending text[];
  v_ended bigint;
  v_floor bigint;
  v_leased int8multirange;
  v_found int := 0;
  v_rows int;
BEGIN
  SELECT * INTO v_last FROM swept s WHERE s.queue = p_queue;
  v_pending := ARRAY(
    SELECT ((l.classid::bigint & 65535) << 32 | l.objid::bigint) || ' ' || l.virtualtransaction FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' AND l.objsubid = 1 AND l.classid::bigint >> 16 = ticket_tag()
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AND l.pid IS DISTINCT FROM pg_backend_pid());
  SELECT min(split_part(p, ' ', 1)::bigint) INTO v_ended FROM unnest(v_last.pending) p WHERE NOT p = ANY (v_pending);
  FOR v_level IN 0 .. 3 LOOP
    v_floor := least(v_last.at[v_level + 1], coalesce(v_ended, v_last.at[v_level + 1]));
    CONTINUE WHEN v_floor >= p_at[v_level + 1];
    -- Range by range: PostgreSQL 14 adds up no multiranges.
    SELECT coalesce(range_agg(r), '{}') INTO v_leased
      FROM (SELECT * FROM lease l WHERE l.queue = p_queue AND l.level = v_level AND l.hi > v_floor) l
      CROSS JOIN LATERAL unnest(coalesce(l.handed, int8multirange(int8range(l.lo, l.hi, '[]')))
        - coalesce((SELECT range_agg(int8range(g, g, '[]')) FROM unnest(l.given_back) g), '{}'::int8multirange)) r;
    INSERT INTO returned (queue, level, seq)
      SELECT p_queue, v_level, j.seq FROM job j
      WHERE j.queue = p_queue AND j.level = v_level AND j.seq > v_floor AND j.seq <= p_at[v_level + 1] AND NOT v_leased @> j.seq
      ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_found := v_found + v_rows;
  END LOOP;
  UPDATE swept SET at = p_at, swept_at = p_now, pending = v_pending WHERE queue = p_queue;
  RETURN v_found;
END $$;
