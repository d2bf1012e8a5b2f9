-- Takes over jobs of expired claims, as `backstop_core::lease::is_expired` says, the earliest claim
-- first; what is left of it, if this was done before under the same number. A lease that somebody
-- settles at this moment is not dead, and passed over. One that has no jobs is removed, and the
-- search goes on behind it. Looks no further back than it is told to: leases that ended before, and
-- are kept alive by a long transaction, are not walked over. The last row has no job: it tells
-- whether expired leases are left that another call would take, and whether some were passed over.
-- number, worker, end, how many, now, the longest end anybody can have asked for, from when on, how
-- many emptied leases it removes
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
  -- What a call before this one left is not known.
  v_more boolean := true;
BEGIN
  -- Two calls under one number: the second waits, and then finds what the first has taken.
  PERFORM pg_advisory_xact_lock(p_number);
  IF p_max > 0 AND NOT EXISTS (SELECT 1 FROM lease l WHERE l.number = p_number) THEN
    -- The rule of `backstop_core::lease::moved_back`, with its minute: workers that were not heard
    -- of since the clock was set back.
    FOR v_worker IN SELECT w.name, w.seen_at FROM worker w WHERE w.seen_at > p_now + 60000000 LOOP
      UPDATE lease l SET until = p_now + l.until - v_worker.seen_at WHERE l.no = ANY (ARRAY(
        SELECT l.no FROM lease l WHERE l.worker = v_worker.name AND l.until >= v_worker.seen_at FOR UPDATE SKIP LOCKED));
    END LOOP;
    -- Page by page, from the first that has expired to the last, and then those that end impossibly
    -- late. A first page is of as many leases as jobs are wanted: each has one, or is removed. It is
    -- cut by the time alone, which is the order of the index: with the number, and statistics of an
    -- empty table, the planner read all that had expired, and sorted them.
    <<search>>
    LOOP
      v_met := 0;
      FOR v_found IN SELECT x.no, x.until
        FROM (SELECT l.until, l.number, l.queue, l.level, l.lo, l.no FROM lease l
          WHERE l.until BETWEEN v_from AND v_to AND NOT l.no = ANY (v_passed) ORDER BY l.until FETCH FIRST v_page ROWS WITH TIES) x
        ORDER BY x.until, x.number, (SELECT q.name FROM queue q WHERE q.id = x.queue), x.level, x.lo
      LOOP
        v_met := v_met + 1;
        -- What was met before is gone, has another end, or was passed over: the next page begins
        -- here.
        v_from := v_found.until;
        SELECT * INTO v_lease FROM lease l WHERE l.no = v_found.no AND (l.until < p_now OR l.until > p_longest) FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
          v_passed := v_passed || v_found.no;
          CONTINUE;
        END IF;
        -- One more than are wanted: whether some are left.
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
          -- What is left begins behind what was taken. Noted among those given back, it would be
          -- met again by every call after this one, and compared with all that were taken before:
          -- 6,000 jobs of three leases, 50 by 50, took 3.5 s instead.
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
