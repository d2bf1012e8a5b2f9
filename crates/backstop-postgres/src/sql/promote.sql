-- Makes jobs ready whose time has come, and adds up counts. The search starts at `p_from`, so that
-- it does not walk over the dead tuples of jobs that became ready earlier, which a long transaction
-- may keep.
-- Parameters: how many jobs at most, now, where the search starts.
CREATE FUNCTION promote(p_max int, p_now bigint, p_from bigint) RETURNS TABLE (moved int, next_due bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_first bigint := (SELECT w.run_at FROM waiting w WHERE w.run_at >= p_from ORDER BY w.run_at, w.no LIMIT 1);
BEGIN
  moved := 0;
  next_due := v_first;
  IF v_first <= p_now THEN
    -- Calls run one after the other: two at once would mix up the order of their jobs.
    PERFORM pg_advisory_xact_lock(((ticket_tag() + 1)::bigint << 48) - 1);
    PERFORM ticket();
    WITH due AS (
      DELETE FROM waiting w WHERE w.ctid = ANY (ARRAY(
        SELECT d.ctid FROM waiting d WHERE d.run_at BETWEEN v_first AND p_now ORDER BY d.run_at, d.no LIMIT p_max FOR UPDATE SKIP LOCKED))
      RETURNING w.*
    ), placed AS (
      INSERT INTO job (seq, no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload, unique_key,
        unique_states, unique_until, retry, history, settled_lease, settled_tag)
      SELECT nextval('line'), d.* FROM (
        SELECT no, run_at, inserted_at, queue, attempts, lost, requeues, level, id, kind, payload, unique_key, unique_states,
          unique_until, retry, history, settled_lease, settled_tag FROM due ORDER BY run_at, no) d
    ), told AS (
      INSERT INTO tally (queue, scheduled, retrying, ready)
      SELECT queue, -count(*) FILTER (WHERE state = 0), -count(*) FILTER (WHERE state = 3), count(*) FROM due GROUP BY queue
    ) SELECT count(*) INTO moved FROM due;
    next_due := (SELECT w.run_at FROM waiting w WHERE w.run_at >= v_first ORDER BY w.run_at, w.no LIMIT 1);
  END IF;
  PERFORM add_up(5000);
  RETURN NEXT;
END $$;
