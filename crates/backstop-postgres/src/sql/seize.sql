-- Seizes jobs of expired claims, as `backstop_core::lease::is_expired` says, the earliest claim
-- first. A repeated call under the same number returns what is left of the first. A lease that
-- another session settles at this moment is not dead, and is skipped. A lease without jobs is
-- removed, and the search goes on behind it. The search starts at `p_from`, so that it does not
-- walk over the dead tuples of earlier leases, which a long transaction may keep. The last row has
-- no job: it says whether expired leases are left that another call would seize, and whether some
-- were skipped.
-- Parameters: lease number, worker, end, how many jobs at most, now, the latest end that a worker
--   can have requested, where the search starts, how many leases without jobs it removes.
CREATE FUNCTION seize(p_number bigint, p_worker text, p_until bigint, p_max int, p_now bigint, p_longest bigint, p_from bigint,
  p_emptied int)
RETURNS TABLE (queue text, level smallint, seq bigint, id uuid, kind text, payload bytea, attempts int, lost int, inserted_at bigint,
  run_at bigint, retry bytea, history bytea, vanished_worker text, vanished_number bigint, begun boolean, more boolean, passed boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_worker record;
  v_found record;
  v_lease lease%ROWTYPE;
  v_left int := p_max;
  v_seqs bigint[];
  v_taken bigint[];
  v_from bigint := p_from;
  v_to bigint := p_now - 1;
  v_page int := p_max;
  v_met int;
  v_emptied int := 0;
  v_passed bigint[] := '{}';
  -- A repeated call does not know what the first one left.
  v_more boolean := true;
BEGIN
  -- Of two calls under one number the second waits here, and then finds the jobs that the first has
  -- seized.
  PERFORM pg_advisory_xact_lock(p_number);
  IF p_max > 0 AND NOT EXISTS (SELECT 1 FROM lease l WHERE l.number = p_number) THEN
    -- The rule of `backstop_core::lease::end_after_clock_set_back`, with its minute: these workers
    -- sent no heartbeat since the clock was set back.
    FOR v_worker IN SELECT w.name, w.seen_at FROM worker w WHERE w.seen_at > p_now + 60000000 LOOP
      UPDATE lease l SET until = p_now + l.until - v_worker.seen_at WHERE l.no = ANY (ARRAY(
        SELECT l.no FROM lease l WHERE l.worker = v_worker.name AND l.until >= v_worker.seen_at FOR UPDATE SKIP LOCKED));
    END LOOP;
    -- Read the leases page by page, from the first that has expired to the last, and then those
    -- that end impossibly late. The first page has as many leases as jobs are wanted: each lease
    -- has a job or is removed. The page is cut by time alone, which is the order of the index: with
    -- the number in the order, and the statistics of an empty table, the planner read all expired
    -- leases and sorted them.
    <<search>>
    LOOP
      v_met := 0;
      FOR v_found IN SELECT x.no, x.until
        FROM (SELECT l.until, l.number, l.queue, l.level, l.lo, l.no FROM lease l
          WHERE l.until BETWEEN v_from AND v_to AND NOT l.no = ANY (v_passed) ORDER BY l.until FETCH FIRST v_page ROWS WITH TIES) x
        ORDER BY x.until, x.number, (SELECT q.name FROM queue q WHERE q.id = x.queue), x.level, x.lo
      LOOP
        v_met := v_met + 1;
        -- Leases before this one are removed, have another end, or were skipped: the next page
        -- starts here.
        v_from := v_found.until;
        SELECT * INTO v_lease FROM lease l WHERE l.no = v_found.no AND (l.until < p_now OR l.until > p_longest) FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
          v_passed := v_passed || v_found.no;
          CONTINUE;
        END IF;
        -- Read one job more than is wanted, to know whether some are left.
        v_seqs := ARRAY(SELECT j.seq FROM job j WHERE j.queue = v_lease.queue AND j.level = v_lease.level
          AND j.seq BETWEEN v_lease.lo AND v_lease.hi AND (v_lease.handed IS NULL OR v_lease.handed @> j.seq)
          AND (v_lease.given_back IS NULL OR NOT j.seq = ANY (v_lease.given_back)) ORDER BY j.seq LIMIT v_left + 1);
        IF cardinality(v_seqs) = 0 THEN
          DELETE FROM lease WHERE no = v_lease.no;
          v_emptied := v_emptied + 1;
        ELSIF cardinality(v_seqs) <= v_left THEN
          UPDATE lease SET number = p_number, worker = p_worker, since = p_now, until = p_until,
            vanished_worker = coalesce(vanished_worker, worker), vanished_number = coalesce(vanished_number, number)
          WHERE no = v_lease.no;
          v_left := v_left - cardinality(v_seqs);
        ELSE
          v_taken := v_seqs[1 : v_left];
          INSERT INTO lease (number, lo, hi, since, until, queue, level, worker, handed, begun, vanished_worker, vanished_number)
          VALUES (p_number, v_taken[1], v_taken[v_left], p_now, p_until, v_lease.queue, v_lease.level, p_worker,
            (SELECT range_agg(int8range(s, s, '[]')) FROM unnest(v_taken) s), v_lease.begun,
            coalesce(v_lease.vanished_worker, v_lease.worker), coalesce(v_lease.vanished_number, v_lease.number));
          -- The rest of the lease starts behind the seized places. If these were added to
          -- `given_back` instead, every later call would read them again, and compare each with all
          -- that were seized before: 6,000 jobs of three leases, 50 by 50, took 3.5 s instead.
          UPDATE lease SET lo = v_taken[v_left] + 1, handed = handed * int8multirange(int8range(v_taken[v_left] + 1, hi, '[]')),
            given_back = ARRAY(SELECT g FROM unnest(given_back) g WHERE g > v_taken[v_left])
          WHERE no = v_lease.no;
          v_left := 0;
        END IF;
        EXIT search WHEN v_left = 0;
      END LOOP;
      EXIT WHEN v_emptied >= p_emptied OR cardinality(v_passed) >= p_emptied;
      IF v_met < v_page THEN
        EXIT WHEN v_to > p_longest;
        v_from := p_longest + 1;
        v_to := 9223372036854775807;
      END IF;
      v_page := greatest(p_max, 500);
    END LOOP;
    v_more := EXISTS (SELECT 1 FROM lease l WHERE l.until BETWEEN v_from AND p_now - 1 AND NOT l.no = ANY (v_passed))
      OR EXISTS (SELECT 1 FROM lease l WHERE l.until > p_longest AND NOT l.no = ANY (v_passed));
  END IF;
  RETURN QUERY SELECT h.*, NULL::boolean, NULL::boolean FROM held(p_number) h;
  more := v_more;
  passed := v_passed <> '{}';
  RETURN NEXT;
END $$;
