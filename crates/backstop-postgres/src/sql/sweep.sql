-- Looks for late jobs: a transaction draws places before it commits, and the cursor may have passed
-- them by then. Returns the new cursor row of the queue, and how many late jobs there are; claims
-- find them in `returned`. The caller must hold the lock of the queue, and must save the row with
-- `reach`.
--
-- A late job belongs to a transaction that drew its places before the cursor passed them. Such a
-- transaction was either open at the previous sweep or began after it. In the second case its
-- places are behind the cursor of that sweep. So it is enough to look behind the cursor of the last
-- sweep, and behind the places of those transactions that were open then and are not any more. A
-- transaction that never ends costs nothing until it does. The advisory lock of a transaction stays
-- in pg_locks until its rows are visible.
CREATE FUNCTION sweep(INOUT p_reached reached, p_now bigint, OUT late int) LANGUAGE plpgsql AS $$
DECLARE
  v_pending text[];
  v_ended bigint;
  v_floor bigint;
  v_leased int8multirange;
  v_late bigint[];
BEGIN
  late := 0;
  v_pending := ARRAY(
    SELECT ((l.classid::bigint & 65535) << 32 | l.objid::bigint) || ' ' || l.virtualtransaction FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' AND l.objsubid = 1 AND l.classid::bigint >> 16 = ticket_tag()
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AND l.pid IS DISTINCT FROM pg_backend_pid());
  SELECT min(split_part(p, ' ', 1)::bigint) INTO v_ended FROM unnest(p_reached.pending) p WHERE NOT p = ANY (v_pending);
  FOR v_level IN 0 .. 3 LOOP
    v_floor := least(p_reached.swept[v_level + 1], coalesce(v_ended, p_reached.swept[v_level + 1]));
    CONTINUE WHEN v_floor >= p_reached.at[v_level + 1];
    -- Aggregate the single ranges: PostgreSQL 14 has no `range_agg` of multiranges.
    SELECT coalesce(range_agg(r), '{}') INTO v_leased
      FROM (SELECT * FROM lease l WHERE l.queue = p_reached.queue AND l.level = v_level AND l.hi > v_floor) l
      CROSS JOIN LATERAL unnest(coalesce(l.handed, int8multirange(int8range(l.lo, l.hi, '[]')))
        - coalesce((SELECT range_agg(int8range(g, g, '[]')) FROM unnest(l.given_back) g), '{}'::int8multirange)) r;
    WITH late AS (
      INSERT INTO returned (queue, level, seq)
        SELECT p_reached.queue, v_level, j.seq FROM job j
        WHERE j.queue = p_reached.queue AND j.level = v_level AND j.seq > v_floor AND j.seq <= p_reached.at[v_level + 1]
          AND NOT v_leased @> j.seq
        ON CONFLICT DO NOTHING RETURNING seq
    ) SELECT array_agg(seq ORDER BY seq) INTO v_late FROM late;
    CONTINUE WHEN v_late IS NULL;
    p_reached.low[v_level + 1] := least(p_reached.low[v_level + 1], v_late[1]);
    late := late + cardinality(v_late);
  END LOOP;
  p_reached.swept := p_reached.at;
  p_reached.swept_at := p_now;
  p_reached.pending := v_pending;
END $$;

-- Saves the cursor row of a queue. The caller must hold the lock of the queue.
CREATE FUNCTION reach(p_reached reached) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO reached (queue, step, at, swept, low, swept_at, pending) VALUES (p_reached.queue, p_reached.step + 1, p_reached.at,
    p_reached.swept, p_reached.low, p_reached.swept_at, p_reached.pending);
  DELETE FROM reached c WHERE c.queue = p_reached.queue AND c.step = p_reached.step;
END $$;
