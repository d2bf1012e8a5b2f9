-- Keeps claims alive; answers which of the named leases are lost, by number from 1 on. The end of a claim follows
-- `backstop_core::lease::extended`.
-- worker, its queues, per lease: id, queue, number; the new end, the last end that is not cut short, now
CREATE FUNCTION beat(p_worker text, p_served text, p_ids uuid[], p_queues text[], p_numbers bigint[], p_until bigint,
  p_longest bigint, p_now bigint)
RETURNS TABLE (lost int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_lost int[];
BEGIN
  INSERT INTO worker (name, queues, seen_at) VALUES (p_worker, p_served, p_now)
  ON CONFLICT (name) DO UPDATE SET queues = excluded.queues, seen_at = excluded.seen_at;
  IF cardinality(p_ids) = 0 THEN RETURN; END IF;
  PERFORM 1 FROM lease l WHERE l.number = ANY (p_numbers) ORDER BY l.no FOR UPDATE;
  v_lost := ARRAY(SELECT o::int FROM unnest(p_ids, p_queues, p_numbers) WITH ORDINALITY u(id, queue, number, o)
    WHERE NOT EXISTS (SELECT 1 FROM job j JOIN lease l ON l.number = u.number
      WHERE j.id = u.id AND l.queue = j.queue AND l.level = j.level AND j.seq BETWEEN l.lo AND l.hi
        AND (l.handed IS NULL OR l.handed @> j.seq) AND (l.given_back IS NULL OR NOT j.seq = ANY (l.given_back))
        AND j.queue = (SELECT q.id FROM queue q WHERE q.name = u.queue)));
  UPDATE lease l SET until = CASE WHEN l.until > p_longest THEN p_until ELSE greatest(l.until, p_until) END
  WHERE l.number = ANY (ARRAY(SELECT DISTINCT number FROM unnest(p_numbers) WITH ORDINALITY u(number, o)
    WHERE NOT o IN (SELECT unnest(v_lost))));
  RETURN QUERY SELECT unnest(v_lost);
END $$;

-- Notes that runs have begun; answers which leases are lost, by number from 1 on.
-- per lease: id, queue, number
CREATE FUNCTION begin_runs(p_ids uuid[], p_queues text[], p_numbers bigint[]) RETURNS TABLE (lost int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_run record;
BEGIN
  PERFORM 1 FROM lease l WHERE l.number = ANY (p_numbers) ORDER BY l.no FOR UPDATE;
  FOR i IN 1 .. cardinality(p_ids) LOOP
    SELECT * INTO v_run FROM leased(p_ids[i], p_queues[i], p_numbers[i]);
    IF FOUND THEN
      -- A seizer does not run the job: what is known of the worker that vanished stays.
      UPDATE lease SET begun = begun || v_run.seq
        WHERE no = v_run.lease AND vanished_worker IS NULL AND NOT coalesce(v_run.seq = ANY (begun), false);
    ELSE
      lost := i;
      RETURN NEXT;
    END IF;
  END LOOP;
END $$;
