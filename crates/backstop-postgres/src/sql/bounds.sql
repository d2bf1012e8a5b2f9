-- Locks the pushes or the deaths of a queue that has a bound, so that only one transaction at a
-- time does them. The lock lasts until the end of the transaction.
CREATE FUNCTION bound_lock(p_queue int, p_dead boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(((ticket_tag() + 1)::bigint << 48) - 3 - 2 * p_queue::bigint - p_dead::int);
END $$;

-- How many jobs of a queue are live, done and dead. One statement reads `total` and `tally`: counts
-- that are added up meanwhile are in exactly one of the two.
CREATE FUNCTION counted(p_queue int, OUT live bigint, OUT done bigint, OUT dead bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_from record;
BEGIN
  SELECT * INTO v_from FROM tallied_from(false);
  SELECT coalesce(sum(t.live), 0), coalesce(sum(t.done), 0), coalesce(sum(t.dead), 0) INTO live, done, dead FROM (
    (SELECT t.scheduled + t.ready + t.running + t.retrying AS live, t.done, t.dead FROM total t WHERE t.queue = p_queue
      ORDER BY t.step DESC LIMIT 1)
    UNION ALL SELECT t.scheduled + t.ready + t.running + t.retrying, t.done, t.dead FROM tallied(v_from.p_xid, v_from.p_pending) t
      WHERE t.queue = p_queue) t;
END $$;

-- How much of `p_bound` is left when `p_taken` is used. A bound is the bits of a u64.
CREATE FUNCTION left_of(p_bound bigint, p_taken bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p_bound < 0 THEN 9223372036854775807 ELSE p_bound END - p_taken
$$;

-- How many more dead letters a queue may hold. No other transaction's job dies in the queue until
-- this transaction ends.
CREATE FUNCTION dead_room(p_queue int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  PERFORM bound_lock(p_queue, true);
  -- A separate statement after the lock, so that its snapshot sees the deaths that this call waited
  -- for.
  RETURN (SELECT left_of(q.dead_max, (counted(p_queue)).dead) FROM queue q WHERE q.id = p_queue);
END $$;

-- How many more live jobs each of these queues may hold; NULL without a bound. No other transaction
-- pushes to the queues that have one until this transaction ends.
CREATE FUNCTION rooms(p_names text[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  v_rooms bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_names)]);
  v_queue record;
BEGIN
  -- All sessions lock in the same order, so that they cannot deadlock.
  FOR v_queue IN SELECT q.id, u.o FROM unnest(p_names) WITH ORDINALITY u(name, o) JOIN queue q ON q.name = u.name
    WHERE q.max_size IS NOT NULL ORDER BY q.id
  LOOP
    PERFORM bound_lock(v_queue.id, false);
    v_rooms[v_queue.o] := (SELECT left_of(q.max_size, (counted(q.id)).live) FROM queue q WHERE q.id = v_queue.id);
  END LOOP;
  RETURN v_rooms;
END $$;

-- How many jobs of a full queue may give way to newer ones, and their state then: 5 dead, 6
-- cancelled.
CREATE FUNCTION spare(p_queue int, OUT jobs bigint, OUT state smallint) LANGUAGE plpgsql AS $$
BEGIN
  state := (SELECT CASE q.overflow WHEN 'dead_letter_oldest' THEN 5 WHEN 'drop_oldest' THEN 6 END FROM queue q WHERE q.id = p_queue);
  IF state IS NULL THEN
    jobs := 0;
    RETURN;
  END IF;
  -- Claims take no row lock on jobs. So a call that takes a job out of the ready line locks its
  -- queue, and claims wait.
  PERFORM 1 FROM queue q WHERE q.id = p_queue FOR UPDATE;
  jobs := CASE WHEN state = 5 THEN dead_room(p_queue) ELSE 9223372036854775807 END;
END $$;

-- Locks the queues in which a job may have to give way, before the first does: first the queues,
-- then their deaths, each by number, as claims and settlements do. If the locks were taken job by
-- job, two pushes to several full queues could deadlock.
CREATE FUNCTION lock_crowded(p_names text[], p_queue_at int[], p_rooms bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_crowded int[] := ARRAY(
    SELECT q.id FROM unnest(p_names) WITH ORDINALITY u(name, o) JOIN queue q ON q.name = u.name
    WHERE q.overflow IN ('dead_letter_oldest', 'drop_oldest')
      AND p_rooms[u.o] < (SELECT count(*) FROM unnest(p_queue_at) p(a) WHERE p.a = u.o)
    ORDER BY q.id);
BEGIN
  IF cardinality(v_crowded) = 0 THEN RETURN; END IF;
  PERFORM 1 FROM queue q WHERE q.id = ANY (v_crowded) ORDER BY q.id FOR UPDATE;
  PERFORM bound_lock(c, true) FROM unnest(v_crowded) c JOIN queue q ON q.id = c WHERE q.overflow = 'dead_letter_oldest' ORDER BY c;
END $$;

-- Ends the oldest ready job of the least urgent level that has one; returns whether there was one.
-- The caller must hold the lock of the queue. The cursor advances to the place of the job, so that
-- the next search does not walk over dead tuples that a long transaction keeps.
CREATE FUNCTION give_way(p_queue int, p_state smallint, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_reached reached%ROWTYPE;
  v_swept record;
  v_seq bigint;
  v_victim job%ROWTYPE;
  -- The value of `backstop_core::Fingerprint::of_overflow`.
  v_fingerprint constant bigint := 3209352494638848362;
BEGIN
  SELECT * INTO v_reached FROM reached c WHERE c.queue = p_queue ORDER BY c.step DESC LIMIT 1;
  LOOP
    FOR v_level IN REVERSE 3 .. 0 LOOP
      SELECT r.seq INTO v_seq FROM returned r WHERE r.queue = p_queue AND r.level = v_level AND r.seq >= v_reached.low[v_level + 1]
        ORDER BY r.seq LIMIT 1;
      IF FOUND THEN
        DELETE FROM returned r WHERE r.queue = p_queue AND r.level = v_level AND r.seq = v_seq;
        v_reached.low[v_level + 1] := v_seq + 1;
      ELSE
        SELECT j.seq INTO v_seq FROM job j WHERE j.queue = p_queue AND j.level = v_level AND j.seq > v_reached.at[v_level + 1]
          ORDER BY j.seq LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        v_reached.at[v_level + 1] := v_seq;
      END IF;
      PERFORM reach(v_reached);
      DELETE FROM job j WHERE j.queue = p_queue AND j.level = v_level AND j.seq = v_seq RETURNING j.* INTO v_victim;
      -- A place in `returned` that has no job makes no room.
      IF NOT FOUND THEN RETURN give_way(p_queue, p_state, p_now); END IF;
      PERFORM place(v_victim, p_state, 'overflow', CASE WHEN p_state = 5 THEN v_fingerprint END, p_now);
      PERFORM tell(p_queue, 1, p_state, 1);
      RETURN true;
    END LOOP;
    -- Only late jobs may be left, which the cursor has passed.
    SELECT * INTO v_swept FROM sweep(v_reached, p_now);
    v_reached := v_swept.p_reached;
    IF v_swept.late = 0 THEN
      PERFORM reach(v_reached);
      RETURN false;
    END IF;
  END LOOP;
END $$;
