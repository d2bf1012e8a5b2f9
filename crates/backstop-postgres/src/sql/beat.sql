-- Records a heartbeat of a worker and extends its claims. Returns which of these leases are lost,
-- by index from 1 on: those that are not current, unless their jobs were settled under them. The
-- new end of a claim follows `backstop_core::lease::extend_lease`.
-- Parameters: worker, its queues; per lease: id of the job, queue, lease number; the new end, the
--   last end that is not cut short, now.
CREATE FUNCTION beat(p_worker text, p_served text, p_ids uuid[], p_queues text[], p_numbers bigint[], p_until bigint,
  p_longest bigint, p_now bigint)
RETURNS TABLE (lost int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_lost int[];
BEGIN
  INSERT INTO worker (name, queues, seen_at) VALUES (p_worker, p_served, p_now)
  ON CONFLICT (name) DO UPDATE SET queues = excluded.queues, seen_at = excluded.seen_at;
  IF cardinality(p_ids) = 0 THEN RETURN; END IF;
  PERFORM 1 FROM lease l WHERE l.number = ANY (p_numbers) ORDER BY l.no + 0 FOR NO KEY UPDATE;
  v_lost := ARRAY(SELECT o::int FROM generate_series(1, cardinality(p_ids)) o
    WHERE NOT o IN (SELECT r.at FROM current_runs(p_ids, p_queues, p_numbers) r));
  UPDATE lease l SET until = CASE WHEN l.until > p_longest THEN p_until ELSE greatest(l.until, p_until) END
  WHERE l.number = ANY (ARRAY(SELECT DISTINCT number FROM unnest(p_numbers) WITH ORDINALITY u(number, o)
    WHERE NOT o IN (SELECT unnest(v_lost))));
  RETURN QUERY SELECT u FROM unnest(v_lost) u WHERE NOT is_settled(p_ids[u], p_queues[u], p_numbers[u], NULL);
END $$;

-- Records that runs have started. Returns which leases are lost, by index from 1 on.
-- Parameters, per lease: id of the job, queue, lease number.
CREATE FUNCTION begin_runs(p_ids uuid[], p_queues text[], p_numbers bigint[]) RETURNS TABLE (lost int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_done text := see_others();
BEGIN
  PERFORM 1 FROM lease l WHERE l.number = ANY (p_numbers) ORDER BY l.no + 0 FOR NO KEY UPDATE;
  -- A worker that seized the lease does not run the job: what is known of the worker that vanished
  -- stays.
  UPDATE lease l SET begun = coalesce(l.begun, '{}') || r.seqs
    FROM (SELECT r.lease, array_agg(DISTINCT r.seq) AS seqs FROM current_runs(p_ids, p_queues, p_numbers) r GROUP BY r.lease) r
    WHERE l.no = ANY (ARRAY[r.lease]) AND l.vanished_worker IS NULL AND NOT coalesce(l.begun @> r.seqs, false);
  RETURN QUERY SELECT o FROM generate_series(1, cardinality(p_ids)) o
    WHERE NOT o IN (SELECT r.at FROM current_runs(p_ids, p_queues, p_numbers) r);
END $$;
