-- Stores dead letters. Returns a row for each that was refused: its index from 1 on, whether the
-- queue is at its bound of dead letters, and whether another queue has the id; if neither, the
-- queue itself already has the id. Each job goes through `job`, whose unique index on ids is where
-- concurrent pushes of one id meet.
-- Parameters, per dead letter: queue, id, level, kind, payload, time, unique key, the states in
--   which the key is held, until when it is held, retry policy, attempts, lost leases, requeues,
--   when it was enqueued, when it died, reason, history, fingerprint.
CREATE FUNCTION bury(p_queues text[], p_ids uuid[], p_levels smallint[], p_kinds text[], p_payloads bytea[], p_run_ats bigint[],
  p_keys text[], p_key_states smallint[], p_key_untils bigint[], p_retries bytea[], p_attempts int[], p_lost int[], p_requeues int[],
  p_inserted_ats bigint[], p_finished_ats bigint[], p_reasons text[], p_histories bytea[], p_fingerprints bigint[])
RETURNS TABLE (at int, is_full boolean, is_conflict boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_queues int[];
  v_rooms bigint[] := '{}';
  v_queue int;
  v_place int;
  v_job job%ROWTYPE;
  v_no bigint;
BEGIN
  v_queues := ARRAY(SELECT q.id FROM queue q WHERE q.name = ANY (p_queues) ORDER BY q.id);
  FOR i IN 1 .. cardinality(v_queues) LOOP
    v_rooms := v_rooms || dead_room(v_queues[i]);
  END LOOP;
  FOR i IN 1 .. cardinality(p_ids) LOOP
    IF cardinality(known_outside(2, ARRAY[p_ids[i]])) > 0 THEN
      RETURN QUERY SELECT i, false, is_elsewhere(p_ids[i], p_queues[i]);
      CONTINUE;
    END IF;
    v_queue := queue_or_new(p_queues[i]);
    v_place := array_position(v_queues, v_queue);
    IF v_place IS NULL THEN
      v_queues := v_queues || v_queue;
      v_rooms := v_rooms || dead_room(v_queue);
      v_place := cardinality(v_queues);
    END IF;
    IF v_rooms[v_place] <= 0 THEN
      RETURN QUERY SELECT i, true, false;
      CONTINUE;
    END IF;
    v_no := nextval('line');
    INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload, unique_key,
      unique_states, unique_until, retry, history)
    VALUES (v_no, v_no, p_run_ats[i], p_inserted_ats[i], v_queue, p_attempts[i], p_lost[i], p_requeues[i], p_levels[i], p_ids[i],
      p_kinds[i], p_payloads[i], p_keys[i], p_key_states[i], p_key_untils[i], p_retries[i], p_histories[i])
    ON CONFLICT (id) DO NOTHING;
    DELETE FROM job j WHERE j.id = p_ids[i] AND j.no = v_no RETURNING j.* INTO v_job;
    IF NOT FOUND OR cardinality(known_outside(0, ARRAY[p_ids[i]])) > 0 THEN
      RETURN QUERY SELECT i, false, is_elsewhere(p_ids[i], p_queues[i]);
      CONTINUE;
    END IF;
    PERFORM place(v_job, 5::smallint, p_reasons[i], p_fingerprints[i], p_finished_ats[i]);
    PERFORM tell(v_queue, NULL, 5, 1);
    v_rooms[v_place] := v_rooms[v_place] - 1;
  END LOOP;
END $$;

-- Dead letters of one queue, or of all, grouped by fingerprint: the largest groups first. The index
-- alone is read to count them.
-- Parameters: queue, how many groups.
CREATE FUNCTION groups(p_queue text, p_max int)
RETURNS TABLE (queue text, fingerprint bigint, jobs bigint, first_at bigint, last_at bigint, sample uuid) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_queue int := (SELECT q.id FROM queue q WHERE q.name = p_queue);
BEGIN
  -- Look the sample up after the groups are chosen: only for these, and not for all.
  RETURN QUERY SELECT g.name, g.fingerprint, g.jobs, g.first_at, g.last_at,
      (SELECT f.id FROM finished f WHERE f.queue = g.queue AND f.state = 5 AND f.fingerprint = g.fingerprint
        ORDER BY f.finished_at DESC, f.no DESC LIMIT 1)
    FROM (
      SELECT q.name, q.id AS queue, c.* FROM queue q CROSS JOIN LATERAL (
        SELECT f.fingerprint, count(*) AS jobs, min(f.finished_at) AS first_at, max(f.finished_at) AS last_at FROM (
          -- This is the order of the one index that has only dead letters of this queue, so the
          -- planner can use no other, whatever the statistics say.
          SELECT f.fingerprint, f.finished_at FROM finished f WHERE f.queue = q.id AND f.state = 5 AND f.fingerprint IS NOT NULL
          ORDER BY f.fingerprint, f.finished_at, f.no OFFSET 0) f
        GROUP BY f.fingerprint) c
      WHERE p_queue IS NULL OR q.id = v_queue
      ORDER BY c.jobs DESC, c.last_at DESC, q.name, c.fingerprint LIMIT p_max) g
    ORDER BY g.jobs DESC, g.last_at DESC, g.name, g.fingerprint;
END $$;
