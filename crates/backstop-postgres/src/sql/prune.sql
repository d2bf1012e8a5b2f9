-- Removes ended jobs whose retention is over, queue by queue as named: done, cancelled, dead,
-- oldest first. Then removes unique keys whose job is removed and whose period is over, and workers
-- without a heartbeat for long. Returns how many jobs of each state it removed, whether more are
-- left, and up to which time nothing is left to remove, three times per queue. The caller starts
-- the next search there, so that it does not walk over the dead tuples of removed jobs, which a
-- long transaction may keep.
-- Parameters: per queue: name, how long done jobs stay, how many of them stay, how long cancelled
--   jobs stay, how long dead jobs stay; how many jobs to remove at most, the oldest heartbeat of a
--   worker that stays, now; where the searches start: three times per queue, and for keys.
CREATE FUNCTION prune(p_queues text[], p_done_for bigint[], p_done_max bigint[], p_cancelled_for bigint[], p_dead_for bigint[],
  p_max int, p_silent_since bigint, p_now bigint, p_froms bigint[], p_keys_from bigint)
RETURNS TABLE (done int, cancelled int, dead int, more boolean, upto bigint[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_queue int;
  v_left int := p_max;
  v_surplus bigint;
  v_gone int[] := '{0,0,0}';
  v_pruned record;
BEGIN
  done := 0;
  cancelled := 0;
  dead := 0;
  more := false;
  upto := array_fill(NULL::bigint, ARRAY[3 * cardinality(p_queues)]);
  -- Two calls at once would each remove the surplus. If another call is running, it does the work.
  IF NOT pg_try_advisory_xact_lock(((ticket_tag() + 1)::bigint << 48) - 2) THEN
    RETURN NEXT;
    RETURN;
  END IF;
  PERFORM add_up(20000), add_up_streams(20000);
  FOR i IN 1 .. cardinality(p_queues) LOOP
    SELECT q.id INTO v_queue FROM queue q WHERE q.name = p_queues[i];
    CONTINUE WHEN NOT FOUND;
    v_surplus := (SELECT c.done FROM counted(v_queue) c) - p_done_max[i];
    FOR v_shelf IN 1 .. 3 LOOP
      SELECT * INTO v_pruned FROM prune_shelf(v_queue, (ARRAY[4, 6, 5])[v_shelf]::smallint,
        p_now - (ARRAY[p_done_for[i], p_cancelled_for[i], p_dead_for[i]])[v_shelf],
        CASE WHEN v_shelf = 1 THEN v_surplus ELSE 0 END, v_left, p_now, p_froms[3 * i - 3 + v_shelf]);
      upto[3 * i - 3 + v_shelf] := v_pruned.upto;
      v_gone[v_shelf] := v_gone[v_shelf] + v_pruned.gone;
      v_left := v_left - v_pruned.gone;
      more := more OR v_pruned.more;
    END LOOP;
  END LOOP;
  more := more OR forget_keys(p_max, p_now, p_keys_from);
  DELETE FROM worker w WHERE w.seen_at < p_silent_since;
  done := v_gone[1];
  cancelled := v_gone[2];
  dead := v_gone[3];
  RETURN NEXT;
END $$;

-- Removes the oldest jobs of one queue and state, from `p_from` on: those that ended by
-- `p_ended_by`, and at least `p_surplus` of them.
CREATE FUNCTION prune_shelf(p_queue int, p_state smallint, p_ended_by bigint, p_surplus bigint, p_max int, p_now bigint, p_from bigint,
  OUT gone int, OUT more boolean, OUT upto bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_row record;
BEGIN
  gone := 0;
  more := false;
  FOR v_row IN SELECT f.ctid AS at, f.finished_at, f.id, f.unique_key, f.unique_states, f.unique_until FROM finished f
    WHERE f.queue = p_queue AND f.state = p_state AND f.finished_at >= p_from ORDER BY f.finished_at, f.no LIMIT p_max + 1 FOR UPDATE
  LOOP
    upto := v_row.finished_at;
    EXIT WHEN gone >= p_surplus AND v_row.finished_at > p_ended_by;
    IF gone = p_max THEN more := true; EXIT; END IF;
    DELETE FROM finished WHERE ctid = v_row.at;
    PERFORM leave_key(p_queue, v_row.unique_key, v_row.id, v_row.unique_states, v_row.unique_until, p_state, p_now);
    gone := gone + 1;
  END LOOP;
  upto := coalesce(upto, p_ended_by);
  IF gone > 0 THEN PERFORM tell(p_queue, p_state, NULL, gone); END IF;
END $$;

-- Removes unique keys that were left behind by their jobs; returns whether there are more.
CREATE FUNCTION forget_keys(p_max int, p_now bigint, p_from bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_gone int;
BEGIN
  DELETE FROM key WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM key k WHERE k.forget_at BETWEEN p_from AND p_now ORDER BY k.forget_at LIMIT p_max FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_gone = ROW_COUNT;
  RETURN v_gone = p_max AND EXISTS (SELECT 1 FROM key k WHERE k.forget_at BETWEEN p_from AND p_now);
END $$;

-- Whether a queue has no job and no unique key. The counts come first: they are cheap, and the
-- other look-ups walk over dead tuples for as long as a transaction keeps them.
CREATE FUNCTION is_unused(p_queue int) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_counted record;
BEGIN
  SELECT * INTO v_counted FROM counted(p_queue);
  RETURN v_counted.live + v_counted.done + v_counted.dead = 0 AND NOT EXISTS (SELECT FROM job j WHERE j.queue = p_queue)
    AND NOT EXISTS (SELECT FROM finished f WHERE f.queue = p_queue) AND NOT EXISTS (SELECT FROM key k WHERE k.queue = p_queue);
END $$;

-- Removes those of these queues, with their totals, that are empty for long enough and that no user
-- configured; returns how many. A push reads the id of a queue without a lock. So a queue is
-- retired first: from then on a push takes a lock to look it up, and brings it back into use. The
-- queue is removed when it has been retired for longer than any push that found it before can last.
-- Parameters: queue names, now, how long they must have been empty, how long they must have been
--   retired.
CREATE FUNCTION forget_queues(p_names text[], p_now bigint, p_empty_for bigint, p_retired_for bigint) RETURNS int LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_queue record;
  v_gone int := 0;
BEGIN
  FOR v_queue IN SELECT q.id, q.empty_since, q.retired_at FROM queue q
    WHERE q.name = ANY (p_names) AND NOT q.paused AND NOT q.configured ORDER BY q.id
  LOOP
    IF NOT is_unused(v_queue.id) THEN
      IF v_queue.empty_since IS NOT NULL THEN
        UPDATE queue q SET empty_since = NULL, retired_at = NULL WHERE q.id = v_queue.id;
      END IF;
    ELSIF v_queue.empty_since IS NULL THEN
      UPDATE queue q SET empty_since = p_now WHERE q.id = v_queue.id AND q.empty_since IS NULL;
    ELSIF v_queue.retired_at IS NULL AND p_now - v_queue.empty_since >= p_empty_for THEN
      UPDATE queue q SET retired_at = p_now WHERE q.id = v_queue.id AND q.empty_since = v_queue.empty_since;
    ELSIF p_now - v_queue.retired_at >= p_retired_for THEN
      PERFORM 1 FROM queue q WHERE q.id = v_queue.id AND q.retired_at = v_queue.retired_at FOR UPDATE;
      CONTINUE WHEN NOT FOUND OR NOT is_unused(v_queue.id);
      DELETE FROM reached r WHERE r.queue = v_queue.id;
      DELETE FROM total t WHERE t.queue = v_queue.id;
      DELETE FROM queue q WHERE q.id = v_queue.id;
      v_gone := v_gone + 1;
    END IF;
  END LOOP;
  RETURN v_gone;
END $$;
